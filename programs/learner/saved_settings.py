"""Write the settings in effect beside the results, as the configuration file that `--config` reads.

Left out are what belongs to a process and not to its run (the number of an actor, `--abandon-other-run`), options that
have no effect, and the address of a Redis server that was not given: it may be in REDIS_URL, with a password. No
option can hold a password: `--redis-url` refuses one. The snapshot from which a run began is named in a comment alone:
a run that goes on does without it, and an evaluation with this file is not to evaluate it. A learner that resumes
compares its own settings with the file's.
"""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from rainbow_iqn_apex.args import GROUPS, Args
from rainbow_iqn_apex.common.files import short_path, write_file
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.options.command_line import heading
from rainbow_iqn_apex.options.config_file import CONFIG, read

_OF_A_PROCESS = {CONFIG, "id_actor", "id_eval_actor", "id_inference", "abandon_other_run", "model"}
_IN_ANOTHER = {"rainbow_only"}  # `agent` says the same
_SERVER = {"host_redis", "port_redis", "redis_url"}


def write_settings(path: Path, args: Args) -> None:
    """Replace the configuration file at `path`, all or nothing; raises OSError."""
    saved = saved_settings(args)
    lines = [f"# The settings of the run at the last start of its learner: --config {path.name} repeats them."]
    if args.model:
        lines.append(
            f"# To begin afresh, it needs --model {short_path(args.model)!r} besides, which is not among them."
        )
    for group in _groups(args):
        values = {f.name: saved[f.name] for f in dataclasses.fields(group) if f.name in saved}
        if values:
            text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000)
            lines += ["", f"# {heading(group)}", text.rstrip("\n")]
    write_file(path, "\n".join([*lines, ""]).encode())


def saved_settings(args: Args) -> dict[str, Any]:
    """Return the settings that the file holds, by option: texts, numbers and booleans."""
    left_out = _OF_A_PROCESS | _IN_ANOTHER | ((_SERVER | args.own.unused) - args.given)
    names = [f.name for group in _groups(args) for f in dataclasses.fields(group)]
    values = {name: args.get(name) for name in names if name not in left_out}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def describe_changes(path: Path, args: Args) -> str:
    """Return one line with the settings that differ from those in the file at `path`; "" if there are none.

    A run that goes on may differ in what its processes do not share, and a preset may have changed meanwhile. A file
    that is not there, or was damaged, has no settings.
    """
    before = read(_groups(args), [flag_of(CONFIG), str(path)]).values
    now = saved_settings(args)
    changed = [
        f"{flag_of(name)} (was {_plain(before[name])!r}, is {value!r})"
        for name, value in now.items()
        if name in before and str(_plain(before[name])) != str(value)
    ]
    return f"Changed since the run's last start: {', '.join(changed)}" if changed else ""


def _plain(value: Any) -> Any:
    return short_path(value) if isinstance(value, Path) else value


def _groups(args: Args) -> tuple[type, ...]:
    return *GROUPS, type(args.own), type(args.environment)
