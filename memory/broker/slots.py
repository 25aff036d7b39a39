"""Hash slots: a cluster puts each key into a slot, by the key's tag in braces, and gives each node some slots."""

import binascii
from functools import cache

SLOTS = 16384


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key, as a cluster computes it."""
    data = key.encode() if isinstance(key, str) else key
    _, _, rest = data.partition(b"{")
    tag, closed, _ = rest.partition(b"}")
    return binascii.crc_hqx(tag if tag and closed else data, 0) % SLOTS


@cache
def tag_of_shard(name: str, shard: int, shards: int) -> str:
    """Return the tag of a shard of a run of this name: `<name>/<shard>`, or with a further number behind it.

    The slots are as many equal parts as there are shards, and the tag's slot is in the part of its shard. A new cluster
    has a part for each master: so a run of as many shards as masters has one shard in each, and not by chance two.
    """
    plain = f"{name}/{shard}"
    for number in range(100 * shards):
        tag = f"{plain}.{number}" if number else plain
        if slot_of(f"{{{tag}}}") * shards // SLOTS == shard:
            return tag
    return plain  # a brace in the name ends the tag, so that all shards have the same slot
