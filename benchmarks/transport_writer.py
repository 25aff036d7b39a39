"""A process of `benchmarks.transport`: `python -m benchmarks.transport_writer <port> <actor> <quick>`."""

import sys

from benchmarks.transport import write

if __name__ == "__main__":
    write(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1")
