"""What hostile and broken clients of an inference server send."""

from typing import Any

import numpy as np
import zmq

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.programs.inference.exchange import (
    Answer,
    ClientId,
    Kind,
    Request,
    Welcome,
    decode,
    encode,
    greet,
    greeted,
)
from tests.fuzz.mutate import bomb
from tests.inference.serving import EACH, NB_ENV, Served, Stream


class Raw:
    """A client that has the server's key, and sends what it is told to; use as a context manager."""

    def __init__(self, served: Served, actor: int = 1, *, known: bool = True) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.rcvtimeo = 30_000
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = bytes.fromhex(served.address.key)
        self._socket.connect(f"tcp://127.0.0.1:{served.address.local_port}")
        if known:
            self.send(greet(ClientId(actor)))
            greeted(self.read(), Welcome)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy()

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def read(self) -> bytes:
        return self._socket.recv()

    def answer(self) -> Answer:
        return decode(self.read(), Answer)

    def wait_until_refused(self) -> None:
        """Until the server answers that it answers no more."""
        while self.read():
            pass


def request(
    call: Any = 1, kind: Kind | Any = "act", after: Any = 0, step: Any = 3, count: Any = EACH, **more: Any
) -> bytes:
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
    return wire.encode(wire.Tag.REQUEST, {"call": 1, "kind": "act", "after": 0, "step": 3} | meta, {})


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
    "damaged": damaged(request()),
    "nothing": b"",
    "garbage": bytes(range(256)),
    "a gigabyte of zeros": bomb(wire.Tag.REQUEST),
    "a name that fills a screen": request(**{"rows." + "\x1b[2J" * 5000: np.zeros(1)}),
    "a message too long": bytes(1 << 20),
}
