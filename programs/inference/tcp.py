"""The options of TCP connections between actors and inference servers."""

import socket

# Without these, an end that has nothing to send would never learn that the other one's host is gone.
_PROBED = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 20_000}  # s, s, times, ms


def prepare(link: socket.socket) -> None:
    """Send small messages at once, and end the connection when the other end's system is silent for 20 s."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBED.items():
        if hasattr(socket, name):  # not all systems have all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
