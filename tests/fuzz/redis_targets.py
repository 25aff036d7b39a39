"""What others may have put under our keys in Redis."""

import json
import random
import threading
from typing import Any

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus, read_run
from rainbow_iqn_apex.memory.broker.scripts import Commit, log_extent, newest_version
from tests.fuzz.mutate import damage, damage_json, json_text
from tests.fuzz.target import Target
from tests.memory.links import write_run

SETTINGS = {"seed": 1, "game": "pong", "rate": 0.25, "model": None}
CONTENTS = (
    b"", b"0", b"7", b"-1", b"1.5", b"9" * 30, b"x", b"\xff\xfe", b"[" * 5000, b"{}", b"null", b"running", b"RIQX",
)  # fmt: skip
ALLOWED = (RunError, UserError, Stopped, BrokerError)


def redis_targets(port: int) -> dict[str, Target]:
    """The record of a run with wrong values, and values of wrong kinds under each key."""
    client = connect(*(server := ("127.0.0.1", port)))
    targets = {"run record": _record(client), "Redis values": _values(client)}
    return {name: target._replace(server=server) for name, target in targets.items()}


def _record(client: Client) -> Target:
    key = Keys("record", "").run
    owner = Owner("/data/results", "there")
    write_run(client, "record", RunStatus("id", "running", SETTINGS, 3, 4, owner=owner, written=1_500_000_000), {0: 5})
    fields: dict[bytes, bytes] = client.hgetall(key)  # type: ignore[assignment]
    sample = json.dumps({name.decode(): value.decode() for name, value in fields.items()}).encode()

    def forge(rng: random.Random, data: bytes) -> bytes:
        record = json.loads(data)
        name = rng.choice(list(record))
        match rng.randrange(4):
            case 0:
                del record[name]
            case 1:
                record["settings"] = json_text(rng, damage_json(rng, SETTINGS)).decode()
            case 2:
                record[name] = damage(rng, record[name].encode()).decode("latin-1")
            case _:
                record[name] = rng.choice(CONTENTS).decode("latin-1")
        return json.dumps(record).encode()

    def read(data: bytes) -> RunStatus | None:
        client.delete(key)
        record: Any = {name: value.encode("latin-1") for name, value in json.loads(data).items()}
        client.hset(key, mapping=record)
        return read_run(client, "record")

    def use(found: RunStatus | None) -> None:
        assert found is None or (isinstance(found.settings, dict) and found.t_actors >= 0)
        assert found is None or (found.whose.isprintable() and len(found.whose) < 5000)

    return Target(0.008, [sample], forge, read, use, (RunError,))


def _values(client: Client) -> Target:
    keys = Keys("values", "id")
    actor = ActorClient(client, "values", "id", 0, threading.Event())
    learner = LearnerClient(client, "values", SETTINGS, 1)
    learner.keys, learner.record = keys, RunStatus("id", "running", SETTINGS, 3, 4)
    learner.lease.token = b"token"  # of a lease that a restarted broker has lost
    names = [
        keys.run, keys.learner_lease, keys.versions, keys.weights(0), keys.log(0), keys.state(0), keys.actor_lease(0),
    ]  # fmt: skip
    fields = ("state", "sequence", "owner", "run_id", "status", "settings", "t_learner", "t_actors", "wire", "read:0")
    calls = (
        actor.saved, actor.record, actor.unread, actor.newest_version, lambda: actor.newest_packet(0, 1000),
        lambda: actor.wait_for_version(-1), lambda: learner.write_progress("running", 1, 2, {0: 3}),
        lambda: learner.publish(4, b"x"), lambda: learner.trim({0: 1}), lambda: log_extent(client, keys.log(0)).last,
        lambda: newest_version(client, keys),
        lambda: actor._scripts.commit(keys, 0, b"token", Commit(1, [b"m"], b"s"), allow_gap=False),
    )  # fmt: skip

    def forge(rng: random.Random, _: bytes) -> bytes:
        return rng.randbytes(24)

    def read(data: bytes) -> None:
        rng = random.Random(data)
        for name in names:
            client.delete(name)
        for name in rng.sample(names, 2):
            match rng.randrange(5):
                case 0:
                    client.set(name, rng.choice(CONTENTS))
                case 1:
                    client.rpush(name, rng.choice(CONTENTS))
                case 2:
                    client.xadd(
                        name, {"m": rng.choice(CONTENTS)}, id=rng.choice(("1-0", "5-7", "18446744073709551615-3"))
                    )
                case _:
                    client.hset(name, mapping={f: rng.choice(CONTENTS) for f in rng.sample(fields, 4)})
        rng.choice(calls)()

    return Target(0.007, [b""], forge, read, lambda _: None, ALLOWED)
