"""Publishes weights beside training: copies them from the GPU on a separate stream, packs and sends them in a thread.

publisher = Publisher(model, client)
publisher.begin(version)     # at the start of a run
publisher.start(version)     # publishes the weights of this moment, and returns at once
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient


class Publisher:
    """Sends one version after the other; the broker keeps the two newest, as an actor may be one behind."""

    def __init__(self, model: Network, client: LearnerClient) -> None:
        self._model = model
        self._client = client
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publisher")
        self._sending: Future[None] | None = None
        self._restored: dict[int, bytes] = {}  # of a checkpoint
        device = next(model.parameters()).device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, version: int) -> None:
        """Publish the restored packets as the only ones, or in a new run the present weights."""
        packets = self._restored or {version: weights_packet.pack(self._model.published(), version)}
        self._client.publish_alone(packets)
        self._restored = {}  # the client has them

    def start(self, version: int) -> None:
        """Publish the weights of this moment as `version`, which follows the last; raises the error of the last one.

        Even after an error there will be a packet of this version, so that a checkpoint can hold it.
        """
        last = self._sending
        weights = self._model.published()
        if self._stream:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        self._sending = self._thread.submit(self._send, version, weights)
        if last:
            last.result()

    def _send(self, version: int, weights: dict[str, Tensor]) -> None:
        with torch.cuda.stream(self._stream):
            packet = weights_packet.pack(weights, version)
        self._client.publish(version, packet)

    def state_dict(self) -> dict[str, Any]:
        """Return the packets of the two newest versions; waits for what is being sent, even if that fails.

        After a stop in the middle of a round, no actor may get the present weights before the round's end, and an actor
        that has a round left to play needs the weights of the version before.
        """
        if self._sending:
            wait([self._sending])
        packets = self._client.packets or self._restored
        return {
            "published": {v: torch.frombuffer(bytearray(packet), dtype=torch.uint8) for v, packet in packets.items()}
        }

    def load_state_dict(self, packets: dict[int, bytes]) -> None:
        """Take over the packets of a checkpoint, by version; `begin` publishes them."""
        self._restored = packets

    def finish(self) -> None:
        """Wait until all is sent; raises the error of the last version."""
        if self._sending:
            self._sending.result()

    def close(self) -> None:
        """Wait for what is being sent, and end the thread."""
        self._thread.shutdown()
