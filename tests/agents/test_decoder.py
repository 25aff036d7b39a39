"""What the learner lets pass of an actor's messages, and what it makes of a log that holds more."""

from dataclasses import asdict, replace
from typing import Any

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.messages import Episode, encode_message
from rainbow_iqn_apex.programs.learner.decoder import MessageDecoder
from rainbow_iqn_apex.saber.results.episode_fields import MOST
from tests.specs import discrete

SPEC = ChunkSpec(stack=2, burn_in=0, length=4, bootstrap_rows=1, period=4, sample_length=1)
RECORD = EpisodeRecord(300, 0, 1, 2, 7, 1.5, -3.0, 21.0, 90, "game_over")
DECODE = MessageDecoder(SPEC, discrete((3,), "uint8", 5), nb_env=3)


def decoded(record: dict[str, Any]) -> Any:
    return DECODE(encode_message(Episode(record)))


def test_what_an_actor_writes_passes() -> None:
    assert decoded(asdict(RECORD)) == Episode(asdict(RECORD))
    extreme = replace(RECORD, score_saber=MOST * (1 - 1e-15), length=MOST - 1, T_actors=MOST - 1, end="x" * 64)
    assert decoded(asdict(extreme)) == Episode(asdict(extreme))
    assert decoded(asdict(RECORD) | {"score_saber": 21})
