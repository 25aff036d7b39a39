"""What hostile and broken clients of an inference server say."""

import secrets
import socket
from contextlib import suppress
from typing import Any

import numpy as np

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.programs.inference.messages import (
    LENGTH,
    Answer,
    Challenge,
    Hello,
    Request,
    Welcome,
    encode,
    frame,
    hear,
    proof,
    say,
)
from tests.deadline import wait_until
from tests.fuzz.mutate import bomb
from tests.inference.serving import EACH, NB_ENV, Served, Stream, receive


class Raw:
    """A client that says what it is told to."""

    def __init__(self, served: Served, *, known: bool = False) -> None:
        self.secret = served.secret
        self.link = socket.socket(socket.AF_UNIX)
        self.link.settimeout(30)
        self.link.connect(served.path)
        self.nonce: str = hear(self.read(), Challenge).nonce
        if known:
            self.link.sendall(say(self.hello()))
            hear(self.read(), Welcome)

    def hello(self, actor: int = 1) -> Hello:
        return Hello(proof(self.secret, "client", self.nonce), secrets.token_hex(16), actor, evaluates=False)

    def read(self) -> bytes:
        return receive(self.link)

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # it has been cut off
            self.link.sendall(data)

    @property
    def is_cut(self) -> bool:
        self.link.settimeout(0.01)
        try:
            return not self.link.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            return True

    def wait_until_cut(self) -> None:
        """Until the server has ended the connection."""
        wait_until(lambda: self.is_cut, "the end of the connection")
        self.link.close()


def request(call: Any = 1, kind: Any = "act", after: Any = 0, step: Any = 3, count: Any = EACH, **more: Any) -> bytes:
    """A good one, but for what is given."""
    arrays = {f"rows.{name}": array for name, array in Stream(7, envs=count).rows()._asdict().items()}
    arrays |= {"places": np.arange(count, dtype=np.int64)}
    arrays = {name: array for name, array in (arrays | more).items() if array is not None}
    return encode(Request(call, kind, after, step, arrays))


def state(**changed: Any) -> dict[str, Any]:
    """A good recurrent state, but for what is given."""
    good = {
        "stack": np.zeros((EACH, 2, 3), np.float32),
        "hidden": np.zeros((EACH, 6), np.float32),
        "cell": np.zeros((EACH, 6), np.float32),
        "last_action": np.zeros(EACH, np.int32),
    }
    return {f"state.{name}": array for name, array in (good | changed).items()}


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def obs(number: float) -> Any:
    found = np.zeros((EACH, 3), np.float32)
    found[2, 1] = number
    return {"rows.obs": found}


def hidden(number: float) -> Any:
    return state(hidden=np.full((EACH, 6), number, np.float32))


def packet(meta: dict[str, Any]) -> bytes:
    return frame(wire.encode(wire.Tag.REQUEST, {"call": 1, "kind": "act", "after": 0, "step": 3} | meta, {}))


FLOATS = {"NaN": np.nan, "an infinite number": np.inf, "a huge number": 3e38}
BAD_REQUESTS: dict[str, bytes] = {
    "place out of range": request(places=np.array([0, 1, 2, NB_ENV])),
    "negative place": request(places=np.array([0, -1, 2, 3])),
    "places of another dtype": request(places=np.arange(EACH, dtype=np.int32)),
    "places that are one number": request(places=np.int64(1)),
    "no places": request(places=None),
    "no environments": request(count=0),
    "more environments than an actor has": request(count=EACH + 1),
    "rows of another shape": request(**{"rows.obs": np.zeros((EACH, 4), np.float32)}),
    "rows of another dtype": request(**{"rows.obs": np.zeros((EACH, 3))}),
    "rows of other environments": request(**{"rows.reward": np.zeros(EACH - 1, np.float32)}),
    "rows without a part": request(**{"rows.discount": None}),
    "rows with more parts": request(**{"rows.more": np.zeros(EACH)}),
    "unknown step type": request(**{"rows.step_type": np.full(EACH, 3, np.uint8)}),
    **{f"{name} in the rows": request(**obs(number)) for name, number in FLOATS.items()},
    **{f"{name} as reward": request(**{"rows.reward": np.full(EACH, n, np.float32)}) for name, n in FLOATS.items()},
    **{f"{name} in the state": request(**hidden(number)) for name, number in FLOATS.items()},
    "huge stack": request(**state(stack=np.full((EACH, 2, 3), 3e38, np.float32))),
    "action beyond all": request(**state(last_action=np.full(EACH, 4, np.int32))),
    "action before all": request(**state(last_action=np.full(EACH, -1, np.int32))),
    "state of another shape": request(**state(cell=np.zeros((EACH, 7), np.float32))),
    "part of a state": request(**{"state.cell": np.zeros((EACH, 6), np.float32)}),
    "unknown kind": packet({"kind": "shut down"}),
    "no such call": packet({"call": -1}),
    "a step below all": request(step=-2),
    "more in the metadata": packet({"run": "rm -rf"}),
    "kind of lockstep: load": request(kind="load"),
    "kind of lockstep: reseed": request(kind="reseed"),
    "priorities of an agent without": request(kind="priorities"),
    "an answer": encode(Answer(1, 1, wants_state=False, arrays={})),
    "damaged": frame(damaged(request()[LENGTH.size :])),
    "nothing": frame(b""),
    "garbage": frame(bytes(range(256))),
    "a gigabyte of zeros": frame(bomb(wire.Tag.REQUEST)),
    "a name that fills a screen": request(**{"rows." + "\x1b[2J" * 5000: np.zeros(1)}),
}  # fmt: skip
