"""A client as an inference server sees it."""

import os
import select
import socket
import threading

from rainbow_iqn_apex.programs.inference.messages import cut, frame
from rainbow_iqn_apex.programs.inference.peers import Peer

_MOST = 4 << 20  # bytes: more than two sockets hold


def test_a_client_may_send_all_of_its_request_before_it_reads_an_answer() -> None:
    # Mutation: read nothing of a client that has an answer to read: each waits for the other.
    ours, theirs = socket.socketpair()
    request, answer = os.urandom(_MOST), os.urandom(_MOST)
    read = bytearray()

    def ask() -> None:
        theirs.sendall(frame(request))
        while (data := theirs.recv(1 << 18)) and len(read) < _MOST:
            read.extend(data)

    with ours, theirs:
        theirs.settimeout(30)
        peer = Peer(ours, b"secret", _MOST)
        peer.is_known = True
        peer.send(frame(answer))
        client = threading.Thread(target=ask)
        client.start()
        found: list[bytes] = []
        while not found:
            reading, writing = [ours] * peer.may_read, [ours] * peer.wants_to_write
            ready = select.select(reading, writing, [], 30)
            assert ready != ([], [], []), "neither reads what the other sends"
            if ready[0]:
                peer.read()
            peer.write()
            found = peer.complete()
            assert len(peer._in) <= _MOST + (1 << 18) + 8, "of a client that reads no answer, one request is kept"
        ours.shutdown(socket.SHUT_WR)
        client.join()
        assert found == [request]
        cut(read, 1000)  # the greeting
        assert cut(read, _MOST) == answer
