"""Which runs a server holds; for people, who only read."""

from rainbow_iqn_apex.memory.broker.connection import Aside
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.broker.upkeep import keys_from

_PREFIX = Keys("", "").run.partition("{")[0]
_MAX_NAME = 200  # characters


def run_names(client: Aside) -> list[str]:
    """Return the names of all runs of which the servers hold a record."""
    names = set()
    for key in keys_from(client, f"{_PREFIX}{{"):
        name = key.decode("utf-8", "replace")[len(_PREFIX) + 1 : -1]
        if Keys(name, "").run.encode() == key and 0 < len(name) <= _MAX_NAME and name.isprintable():
            names.add(name)
    return sorted(names)
