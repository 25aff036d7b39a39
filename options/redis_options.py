"""The options that name the Redis server, which all programs share."""

import os
from collections.abc import Collection
from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.memory.broker import access


@dataclass(frozen=True)
class RedisOptions:
    """Redis server"""

    host_redis: str = option("localhost", "machine of the Redis server")
    port_redis: int = option(access.DEFAULT_PORT, "port of the Redis server", least=1, most=65535, short="-p_red")
    redis_url: str = option(
        "",
        "redis://host:port/db, or rediss:// for TLS, in the place of these two; user, password and certificates come "
        "from the environment, see docs/access.md [default: the variable REDIS_URL]",
    )


def named_twice(options: RedisOptions, given: Collection[str]) -> list[str]:
    """Return a line if the options given, by name, and a URL both name the Redis server."""
    url = options.redis_url or os.environ.get(access.URL)
    if not url or {"host_redis", "port_redis"}.isdisjoint(given):
        return []
    other = access.URL_OPTION if url == options.redis_url else f"the environment variable {access.URL}"
    return [f"--host-redis, --port-redis: {other} names the Redis server, too; leave out one of them"]


def run_name_errors(name: str) -> list[str]:
    """Return what is wrong with `--run-name`, or with the name that a run has by default."""
    if access.is_run_name(name):
        return []
    return [
        f"--run-name: expected at most {access.MOST_NAME} letters, digits, '_', '.' and '-', and none of the last two "
        f"first, got {name[:200]!a}"
    ]


def server_errors(host: str, url: str) -> list[str]:
    """Return what is wrong with `--host-redis` and `--redis-url`."""
    errors = access.check_url(url) if url else []
    if "://" in host or "@" in host:
        errors.append(f"--host-redis: expected the name or address of a machine; {access.URL_OPTION} takes a URL")
    return errors
