"""Decodes what actors say, and lets nothing pass that the learner could not use."""

import math

from agents.reports import training_record
from memory import wire
from memory.chunk import Chunk, ChunkSpec, Field, check_chunk
from memory.messages import Episode, Message, decode_message
from saber.training_log import format_record


class MessageDecoder:
    """Decodes the messages of a run with these chunks; raises ValueError for all others."""

    def __init__(self, spec: ChunkSpec, observation: Field, nb_actions: int) -> None:
        self._spec = spec
        self._fields = spec.row_fields(observation)
        self._nb_actions = nb_actions
        row_bytes = sum(math.prod(field.shape) * wire.DTYPES[field.dtype].itemsize for field in self._fields.values())
        self._max_payload = 2 * spec.window * row_bytes + 65536

    def __call__(self, data: bytes) -> Message:
        """Decode a message."""
        message = decode_message(data, self._max_payload)
        if isinstance(message, Chunk):
            check_chunk(message, self._spec, self._fields)
            actions = message.rows["action"]
            if actions.min() < 0 or actions.max() >= self._nb_actions:
                raise ValueError(f"chunk has an action beyond the {self._nb_actions} that there are")
        elif isinstance(message, Episode):
            format_record(training_record(message, 0))
        return message
