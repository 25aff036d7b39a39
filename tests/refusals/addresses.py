"""Addresses of servers that are refused: one server, the nodes of a cluster, Sentinels."""

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import check_url, find_server
from tests.refusals.reader import Reader, Refused, of

_START = "^--redis-url: expected redis://host:port/db, or rediss:// for TLS"


def _find(url: str) -> None:
    """Find the server as each program does; the check of all options together refuses the same."""
    faults = check_url(url)
    try:
        find_server("", 0, url, {})
    except UserError as error:
        assert faults == [str(error)]
        raise
    assert faults == []


_URLS: Refused = {
    f"{_START}; the scheme stands once": [
        "redis://a,redis://b", "rediss://a:6379,redis://b:6379", "redis+sentinel://a,redis+sentinel://b/it",
    ],
    f"{_START}; user and password stand once": ["redis://u@a,u@b", "redis://u@a:1,u@b:2"],
    f"{_START}; a server of the list has no name, or spaces": [
        "redis://a,", "redis://,a", "redis://a,,b", "redis://a,:6379", "redis://a,/0", "redis://u@,a",
        "rediss+sentinel://a,/it", "redis://a, b", "redis://a:1 ,b:2",
    ],
    f"{_START}; the database of a cluster is 0": ["redis://a,b/1", "rediss://a:1,b:2/15"],
    f"{_START}; db is the number of a database": ["redis://a,b/it", "redis://a,b/0/1"],
    f"{_START}$": ["redis://a,b:0", "redis://a,b:x", "redis://a,b?db=1", "redis://a,b#1", "redis://a,[::1", "http://a,b"],
    r"^--redis-url: expected redis\+sentinel://host:port,host:port/service, with the service's name": [
        "redis+sentinel://a", "redis+sentinel://a,b/", "rediss+sentinel://a:26379,b:26379/it/0",
        "redis+sentinel://a/an it",
    ],
    "^--redis-url: must not hold a password": ["redis://u:p@a,b", "redis+sentinel://u:p@a,b/it"],
}  # fmt: skip

ADDRESSES = [
    Reader("several servers", of(_find), "rediss://a:7000,b:7000,[::1]:7001/0", UserError, _URLS),
    Reader("Sentinels", of(_find), "rediss+sentinel://a,b:26380/it", UserError, {}),
]
