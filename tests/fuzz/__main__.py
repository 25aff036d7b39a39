"""The long fuzzing: python -m tests.fuzz --cases 1000000 --seed 1; exit code 1 if anything fails."""

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rainbow_iqn_apex.options.command_line import path
from tests.conftest import RedisServer
from tests.fuzz.run import fuzz
from tests.fuzz.targets import targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000, help="over all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="name of a target, which gets all cases")
    parser.add_argument("--keep", type=path, help="folder for the cases that failed")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder, closing(RedisServer(Path(folder))) as server:
        server.start()
        for name, target in targets(Path(folder), server.port).items():
            if options.only not in (None, name):
                continue
            cases = options.cases if options.only else round(options.cases * target.share)
            outcome = fuzz(target, cases, options.seed)
            print(
                f"{name}: {outcome.cases} cases in {outcome.seconds:.0f} s, {outcome.accepted} accepted, "
                f"{len(outcome.failures)} kinds of failure",
                flush=True,
            )
            for number, (failure, data) in enumerate(outcome.failures.items()):
                print(f"    {failure}", flush=True)
                if options.keep:
                    (options.keep / f"{name.replace(' ', '_')}_{number}.bin").write_bytes(data)
            failed |= bool(outcome.failures)
    sys.exit(failed)


if __name__ == "__main__":
    main()
