"""Errors of a Redis server in trouble: it may answer again soon, and a person can do something about each."""

import re

APPEND_ERROR = "Errors writing to the AOF file"  # begins an error after MISCONF; what the system has said follows
_TROUBLE = {  # by the code with which the error begins; scripts repeat it within their own errors
    "max number of clients reached": (
        "takes no more connections (max number of clients reached): raise its maxclients (docs/access.md, as "
        "administrator)"
    ),
    "invalid bulk length": (
        "takes no value of this size (invalid bulk length): raise its proto-max-bulk-len (docs/access.md, as "
        "administrator)"
    ),
    "OOM": "has no room: raise its maxmemory (docs/access.md, as administrator)",
    APPEND_ERROR: (
        "cannot append to its file ({reason}): make room on its disk, or repair it; a learner that runs then has the "
        "file written again, as `bgrewriteaof` does, and if that does not help, start the server again"
    ),
    "MISCONF": "cannot write its file: make room on its disk, or see its log",
    "BUSY": "is busy with another client's script that does not end: `script kill` (docs/access.md, as administrator)",
    "LOADING": "is reading its file: wait until it has",
    "READONLY": "is a replica, which takes no writes: name its master, or make it one by `replicaof no one`",
    "MASTERDOWN": "is a replica without its master: name the master, or make it one by `replicaof no one`",
    "CLUSTERDOWN": "belongs to a Redis Cluster that is down: `cluster info` tells why",
    "TRYAGAIN": "is a node of a Redis Cluster that is moving the run's keys: wait until it has",
    "ASK": "is a node of a Redis Cluster that is moving the run's keys: wait until it has",
    "MOVED": "is a node of a Redis Cluster, and the run's keys belong to another node: name a server of its own",
}


def trouble_of(error: Exception) -> str | None:
    """Return what is wrong with the server and what to do, None for an error that is no such trouble."""
    said = " ".join(filter(None, (getattr(error, "status_code", None), str(error))))  # redis-py takes the code off
    how = next((how for code, how in _TROUBLE.items() if re.search(rf"\b{code}\b", said)), None)
    reason = re.search(rf"{APPEND_ERROR}: ([\w /-]{{1,100}})", said)
    return how and how.replace("{reason}", reason[1] if reason else "MISCONF")


def explain_trouble(error: Exception) -> str:
    """Return an error in one line, for people."""
    how = trouble_of(error)
    return f"the Redis server {how}" if how else " ".join(str(error).split())
