"""Make the users of a Redis server: two with the rights that a run needs, one who only looks, and an administrator.

    python programs/make_redis_users.py FOLDER [--redis-7]

writes FOLDER/users.acl for the server, with hashes in the place of the passwords, FOLDER/learner.env,
FOLDER/actor.env and FOLDER/viewer.env for the programs, and FOLDER/admin.env for redis-cli, with new passwords.
docs/access.md shows how to use them.
"""

import argparse
import errno
import hashlib
import os
import secrets
import sys
from pathlib import Path

_PROGRAMS = ("learner", "actor", "viewer")  # users of programs

# SCRIPT LOAD and EVAL give no further rights: the server checks each call in a script as a call of the user.
_CONNECTION = "+ping +info +select +script|load +eval +evalsha"
# Of a cluster: where slots are, and commands to a node that takes a slot over, or to a replica.
_CLUSTER = "+cluster|slots +asking +readonly +wait"
_LEASE = "+set +pttl +pexpire +del"
_READ = "+get +getrange +hgetall +hget +hmget +exists +xread +xrevrange +xinfo|stream"
_VIEWS = "&riqx:* +pubsub|numsub"  # whether a viewer wants what an actor sees; none of our users may publish
_LISTEN = "+subscribe +unsubscribe"  # the start script has the learner's user for all that it starts
_TENDS = "+hset +xadd +xtrim +scan +unlink +memory|usage +bgrewriteaof"
_LEARNER = f"~riqx:* {_CONNECTION} {_CLUSTER} {_LEASE} {_READ} {_TENDS} {_VIEWS} {_LISTEN}"

# An actor reads the run's record, the learner's lease and the weights. It writes its number, its log, its state and its
# lease.
_ACTORS_OWN = "~riqx:*:actors ~riqx:*:log:* ~riqx:*:state:* ~riqx:*:actor:*"
_ACTORS_READING = "~riqx:{*} ~riqx:*:run ~riqx:*:learner ~riqx:*:leader ~riqx:*:versions ~riqx:*:weights:*"
_ACTOR = f"{_CONNECTION} {_CLUSTER} {_LEASE} {_READ} +hset +xadd {_VIEWS}"

# Reads all runs, for dashboard.py and run_status.py; changes nothing, and runs no script.
_VIEWER = f"~riqx:* &riqx:* {_CLUSTER} +ping +info +select +pttl {_READ} +scan {_LISTEN}"

# For the person who looks after the server: sets its memory, ends a script, stops it. No program needs this user.
_ADMIN = "~* &* +@all"

# Redis 6.2 has no keys for reading only: an actor may also write the keys that it reads.
_ACTOR_6 = f"{_ACTORS_OWN} {_ACTORS_READING} {_ACTOR}"
# A script names all keys that it will touch, so EVAL and EVALSHA are allowed for all; each call in it is checked.
_ACTOR_7 = f"{_ACTORS_OWN} {_ACTOR} ({_ACTORS_READING} {_ACTORS_OWN} +eval +evalsha) ({_ACTORS_READING} {_READ} +pttl)"


def acl(passwords: dict[str, str], *, redis_7: bool) -> str:
    """Return the server's file, for the passwords of our users by name; other users get no rights."""
    rules = {"learner": _LEARNER, "actor": _ACTOR_7 if redis_7 else _ACTOR_6, "viewer": _VIEWER, "admin": _ADMIN}
    lines = ["user default off resetchannels -@all"]
    for user, password in passwords.items():
        digest = hashlib.sha256(password.encode()).hexdigest()
        lines.append(f"user {user} on #{digest} resetchannels -@all {rules[user]}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the five files, readable by their owner alone; exit code 2 if one is there already."""
    parser = argparse.ArgumentParser(description=__doc__ or "", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write; made if it is not there")
    parser.add_argument(
        "--redis-7",
        action="store_true",
        help="for Redis 7, 8 and Valkey: the actor cannot overwrite what it only reads",
    )
    given = parser.parse_args()
    passwords = {user: secrets.token_urlsafe(32) for user in (*_PROGRAMS, "admin")}
    files = {"users.acl": acl(passwords, redis_7=given.redis_7)}
    for user in _PROGRAMS:
        files[f"{user}.env"] = f"export REDIS_USERNAME={user}\nexport REDIS_PASSWORD={passwords[user]}\n"
    # redis-cli reads this variable, and none of the programs does, so that none runs with these rights by mistake.
    files["admin.env"] = f"export REDISCLI_AUTH={passwords['admin']}\n"
    try:
        _write(given.folder, files)
    except OSError as error:
        print(
            f"programs/make_redis_users.py: error: {error.filename}: {error.strerror}: nothing is overwritten",
            file=sys.stderr,
        )
        sys.exit(2)


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in files:  # before any is written: a new file would not fit an older one beside it
        if (folder / name).exists():
            raise FileExistsError(errno.EEXIST, "is there already", folder / name)
    for name, text in files.items():
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        print(folder / name)


if __name__ == "__main__":
    main()
