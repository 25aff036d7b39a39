"""What must not be so: each makes a process lose or double experience, or its place, under some fault."""

import time
from typing import Any

from memory.broker import lease, lua
from memory.broker.learner_client import LearnerClient
from memory.broker.transport import Commit, Keys, Scripts

_APPEND = """redis.pcall('XADD', KEYS[1], string.format('%.0f-0', first + i - 6), 'm', ARGV[i])"""
_APPEND_WHEN_IT_IS = """redis.pcall('XADD', KEYS[1], '*', 'm', ARGV[i])"""
_STATE = """redis.call('HSET', KEYS[2], 'state', ARGV[5], 'sequence', number, 'owner', ARGV[1])"""
GAP_S = 1.0  # between the two steps of a commit that should be one


def apply(name: str) -> None:
    """Change this process."""
    {
        "messages without state": _messages_without_state,
        "messages before state": _messages_before_state,
        "ids of the clock": _ids_of_the_clock,
        "trim before ingest": _trim_before_ingest,
        "lease not renewed": _lease_not_renewed,
    }[name]()


def _change_commit(old: str, new: str) -> None:
    assert old in lua.COMMIT
    lua.COMMIT = lua.COMMIT.replace(old, new)


def _messages_without_state() -> None:
    """Only the first commit stores the state."""
    _change_commit(_STATE, f"if first == 1 then {_STATE} else redis.call('HSET', KEYS[2], 'sequence', number) end")


def _messages_before_state() -> None:
    """Two steps, with time to be killed between them."""
    _change_commit(_STATE, "redis.call('HSET', KEYS[2], 'owner', 'nobody')")
    commit = Scripts.commit

    def commit_in_two_steps(
        self: Scripts, keys: Keys, actor: int, token: bytes, it: Commit, *, allow_gap: bool
    ) -> int | None:
        known = commit(self, keys, actor, token, it, allow_gap=allow_gap)
        time.sleep(GAP_S)
        client = self._commit.registered_client
        client.hset(keys.state(actor), mapping={"state": it.state, "sequence": it.last, "owner": token})
        return known

    Scripts.commit = commit_in_two_steps


def _ids_of_the_clock() -> None:
    _change_commit(_APPEND, _APPEND_WHEN_IT_IS)


def _trim_before_ingest() -> None:
    """The learner drops what it has not read."""

    def trim(self: LearnerClient, oldest: dict[int, int]) -> None:
        for actor in oldest:
            self._client.xtrim(self.keys.log(actor), maxlen=0, approximate=False)

    LearnerClient.trim = trim


def _lease_not_renewed() -> None:
    def keep(_: Any) -> None:
        pass

    lease.Lease._keep = keep
