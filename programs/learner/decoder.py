"""Decodes the actors' messages, and refuses those that the learner could not use."""

from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec, check_played
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.messages import Episode, Message, decode_message
from rainbow_iqn_apex.programs.learner.budget import chunk_bytes
from rainbow_iqn_apex.programs.learner.results_folder import training_record


class MessageDecoder:
    """Decodes the messages of a run with these chunks; raises ValueError for all other messages."""

    def __init__(self, spec: ChunkSpec, environment: EnvironmentSpec, nb_env: int) -> None:
        self._spec = spec
        self._fields = spec.row_fields(environment)
        self._action = environment.action
        self._nb_env = nb_env  # of an actor
        self._max_payload = 2 * chunk_bytes(spec, environment) + 65536

    def __call__(self, data: bytes) -> Message:
        """Decode a message."""
        message = decode_message(data, self._max_payload)
        if isinstance(message, Chunk):
            self._check_env(message.env)
            check_played(message, self._spec, self._fields, self._action)
        elif isinstance(message, Episode):
            self._check_env(training_record(message, 0).env)
        return message

    def _check_env(self, env: int) -> None:
        if env >= self._nb_env:
            raise ValueError(f"an environment beyond the {self._nb_env} of an actor")
