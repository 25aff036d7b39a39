"""A TLS server in front of a Redis server that was built without TLS, and certificates for both ends."""

import asyncio
import contextlib
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from tests.servers import SERVERS

# A server that was built with TLS, which the bundled one was not; empty where there is none.
WITH_TLS = next((path for path in SERVERS.values() if b"libssl.so" in Path(path).read_bytes()), "")

# CPython 3.11 leaves a socket to the garbage collector if its server dies before a handshake begins.
UNCLOSED = "ignore:unclosed <ssl.SSLSocket:ResourceWarning"


class Authority:
    """Signs certificates and writes them as the programs want them: PEM files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.ca = trustme.CA()
        self.file = str(folder / "ca.crt")
        self.ca.cert_pem.write_to_path(self.file)

    def server(self, *names: str, expired: bool = False) -> ssl.SSLContext:
        """A server's side of TLS under these names."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._issue(*names, expired=expired).configure_cert(context)
        return context

    def of_redis(self, *names: str) -> dict[str, object]:
        """The options of a Redis server with TLS, under these names, which shows its certificate to other servers."""
        files = self.client(f"server of {names[0]}", *names)
        return {
            "tls-cert-file": files["REDIS_CLIENT_CERT"],
            "tls-key-file": files["REDIS_CLIENT_KEY"],
            "tls-ca-cert-file": self.file,
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }

    def client(self, name: str, *names: str, expired: bool = False) -> dict[str, str]:
        """The variables that name a client's certificate and key, which is for other names where these are given."""
        issued = self._issue(*(names or (name,)), expired=expired)
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        return {"REDIS_CLIENT_CERT": str(certificate), "REDIS_CLIENT_KEY": str(key)}

    def wants_clients(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """The server's side, now asking for certificates that this authority signed."""
        self.ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _issue(self, *names: str, expired: bool) -> trustme.LeafCert:
        ends = datetime.now(UTC) + timedelta(days=-1 if expired else 1)
        return self.ca.issue_cert(*names, not_after=ends, not_before=ends - timedelta(days=2))


class TlsServer:
    """Takes TLS connections on a loopback port and passes what they say to a Redis server; a context manager."""

    def __init__(self, redis_port: int, context: ssl.SSLContext) -> None:
        self._redis_port = redis_port
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._pumps: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="TLS server")

    def __enter__(self) -> "TlsServer":
        self._thread.start()
        listening = asyncio.start_server(self._talk, "localhost", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        (self.port,) = {socket.getsockname()[1] for socket in self._server.sockets[:1]}
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        while self._pumps:
            await asyncio.sleep(0.01)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self._redis_port)
            with contextlib.closing(to_redis):
                pumps = [asyncio.create_task(_pump(*ends)) for ends in ((reader, to_redis), (from_redis, writer))]
                self._pumps.update(pumps)
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in pumps:
                    pump.cancel()
                await asyncio.wait(pumps)
                self._pumps.difference_update(pumps)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
