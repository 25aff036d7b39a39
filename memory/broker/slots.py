"""Hash slots: a cluster puts each key into a slot, by the key's tag in braces, and gives each node some slots."""

from functools import cache

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

SLOTS = REDIS_CLUSTER_HASH_SLOTS


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key, as a cluster computes it."""
    return key_slot(key if isinstance(key, bytes) else key.encode())


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
