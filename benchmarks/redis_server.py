"""A Redis server of one's own for a measurement: the project's settings, a free port, a folder that is removed."""

import socket
import subprocess
import tempfile
import time

from rainbow_iqn_apex.programs.server_program import find_program
from rainbow_iqn_apex.saber.results.run_record import ROOT


class RedisServer:
    """Runs while it is used as a context manager."""

    def __init__(self) -> None:
        self.port = _free_port()

    def __enter__(self) -> "RedisServer":
        self._folder = tempfile.TemporaryDirectory(prefix="benchmark_redis_")
        settings = ["--port", str(self.port), "--dir", self._folder.name, "--logfile", f"{self._folder.name}/redis.log"]
        self.process = subprocess.Popen([find_program().path, ROOT / "redis_rainbow_6379.conf", *settings])
        while not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"redis-server ended with {self.process.returncode}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
