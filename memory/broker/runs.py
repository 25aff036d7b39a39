"""Which runs a server holds; for people, who only read."""

from typing import NamedTuple

from rainbow_iqn_apex.memory.broker.access import is_run_name
from rainbow_iqn_apex.memory.broker.connection import Aside
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.broker.upkeep import keys_from

_PREFIX = Keys("", "").run.removesuffix("}")


class Runs(NamedTuple):
    """The runs of which the servers hold a record."""

    names: list[str]
    left_out: int  # records under names that no run may have, which another client has written


def find_runs(client: Aside) -> Runs:
    """Return the runs that have a record on the servers."""
    records = {key[len(_PREFIX) : -1] for key in keys_from(client, _PREFIX) if key.endswith(b"}")}
    names = {record.decode(errors="replace") for record in records}
    valid = sorted(filter(is_run_name, names))
    return Runs(valid, len(records) - len(valid))
