"""What an inference server and its clients may be sent."""

import json
import random

import numpy as np

from rainbow_iqn_apex.agents.policy import Acted
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference.exchange import (
    Answer,
    ClientId,
    Refusal,
    Request,
    Welcome,
    decode,
    encode,
    greet,
    greeted,
)
from rainbow_iqn_apex.programs.inference.services import ArraySchema, act_together, answer_arrays
from tests.fuzz.mutate import bomb, damage, damage_json, forge_packet, json_text
from tests.fuzz.target import Target
from tests.inference.serving import EACH, NB_ENV, VECTOR, Stream, make


def inference_targets() -> dict[str, Target]:
    """Requests that a server computes, what its clients read, and greetings."""
    policy = make("impala-lstm")
    schema = ArraySchema(policy, VECTOR, NB_ENV)
    rows = Stream(1).rows()
    output, state = policy.act(rows, {}, 5)
    arrays = {f"rows.{name}": array for name, array in rows._asdict().items()} | {"places": np.arange(EACH)}
    first = Request(1, "act", 0, 5, arrays)
    second = Request(2, "act", 0, 9, arrays | {f"state.{name}": array for name, array in state.items()})
    requests = [encode(request) for request in (first, second)]

    def asked(data: bytes) -> Acted:
        ((output, state),) = act_together(policy, [schema.asked(decode(data, Request), None)])
        return output, state

    def answered(data: bytes) -> Answer:
        return decode(data, Answer)

    def use(acted: Acted) -> None:
        output, state = acted
        assert ((output.actions >= 0) & (output.actions < 4)).all()
        assert all(np.isfinite(array).all() for array in (output.extras | state).values())
        encode(Answer(1, output.version, wants_state=False, arrays=answer_arrays(output, state)))

    answers = [
        encode(Answer(1, 3, wants_state, given))
        for wants_state, given in ((False, answer_arrays(output, state)), (True, Arrays()))
    ]
    hostile = [*requests * 4, bomb(wire.Tag.REQUEST)]
    return {
        "inference requests": Target(0.05, hostile, forge_packet, asked, use, (Refusal,)),
        "inference answers": Target(0.05, answers, forge_packet, answered, lambda _: None, (Refusal,)),
        "inference greetings": _greetings(policy.spec, schema),
    }


def _greetings(spec: ChunkSpec, schema: ArraySchema) -> Target:
    kinds: tuple[type[ClientId | Welcome], ...] = (ClientId, Welcome)
    good = (ClientId(3), Welcome(spec, schema.answer, alone=False, places=8))

    def forge(rng: random.Random, data: bytes) -> bytes:
        changed = data[1:]
        changed = json_text(rng, damage_json(rng, json.loads(changed))) if rng.random() < 0.7 else damage(rng, changed)
        return data[:1] + changed

    def read(data: bytes) -> ClientId | Welcome:
        return greeted(data[1:], kinds[data[0]])

    samples = [bytes([number]) + greet(greeting) for number, greeting in enumerate(good)]
    return Target(0.05, samples, forge, read, lambda _: None, (Refusal,))
