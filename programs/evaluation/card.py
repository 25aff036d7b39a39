"""Writes a model card: a folder with snapshot, settings, scores and a film, in the form of Hugging Face's hub.

Nothing is uploaded here. The hub reads the head of README.md, whose `model-index` has the score.
"""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from rainbow_iqn_apex.agents.policy import ActingProtocol
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import folder_to_write, read_regular, short_path, write_file
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.evaluation.settings import RULES
from rainbow_iqn_apex.saber.report.settings import agent_name, protocol_of
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluationLog, format_evaluation, write_evaluation
from rainbow_iqn_apex.saber.results.task import Task

FILM = "replay.webm"  # the hub shows replay.mp4, for which OpenCV's wheels have no codec that browsers play
NEW_FILM = f".{FILM}"  # until the card is written
_LIBRARY = "rainbow-iqn-apex"
_NOT_REPEATED = frozenset({"model", "rainbow_only"})  # the snapshot that training began from; `agent` says the same
_VIDEO = f'\n<video src="{FILM}" controls></video>\n'
_MARK = f"\nlibrary_name: {_LIBRARY}\n"  # in a card's head


def check_folder(folder: Path) -> None:
    """Make the folder of a card; raises UserError if it holds anything else, but for hidden files such as .git."""
    folder_to_write("--export", folder)
    try:
        head, *_ = read_regular(folder / "README.md", folder).decode(errors="replace").split("\n---", 1)
    except OSError:
        head = ""
    is_card = head.startswith("---\n") and _MARK in f"{head}\n"
    if not is_card and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UserError(
            f"--export: {short_path(folder)} holds something else than a model card; name an empty folder, or a new one"
        )


def write_card(args: Args, saved: dict[str, Any], log: EvaluationLog, action_repeat: int, *, film: bool) -> None:
    """Write the card, whose new `film` is there already, in the place of an older card of the folder; the page last."""
    assert args.export is not None
    if not (page := args.export / "README.md").exists():
        write_file(page, f"---{_MARK}---\n".encode())  # so that another command goes on if this one is interrupted
    olds = set(args.export.glob("model_*.pth"))
    name = f"model_{args.task}_{log.record.trained_steps or 0}.pth"  # as `--model` finds it in a folder
    trained = snapshot.settings_of(saved)
    settings = trained | {"agent": args.agent} | log.record.settings
    learned = {key: value for key, value in settings.items() if key not in RULES} | trained
    snapshot.save_exported(args.export / name, saved | {"settings": json.dumps(learned)})
    # The CSV may hold more episodes than this command asks for, of which the page has the means.
    record = replace(log.record, model=name, episodes=len(log.episodes))
    write_evaluation(args.export / "scores.csv", record, log.episodes)
    if film:
        (args.export / NEW_FILM).replace(args.export / FILM)
    else:
        (args.export / FILM).unlink(missing_ok=True)
    kept = {key: value for key, value in settings.items() if value is not None and key not in _NOT_REPEATED}
    for file, text in (
        ("settings.yaml", yaml.safe_dump(kept, allow_unicode=True)),
        ("README.md", _page(args, log, action_repeat) + _VIDEO * film),
    ):
        write_file(args.export / file, text.encode())
    for old in olds - {args.export / name}:
        old.unlink(missing_ok=True)


def summary_of(args: Args, log: EvaluationLog, action_repeat: int) -> str:
    """Write the summary of an evaluation, of at least one episode."""
    acting = "" if log.record.acting is None else ActingProtocol(**log.record.acting).sentence
    records = [episode.record for episode in log.episodes]
    return format_evaluation(records, action_repeat, Task(args.task, args.env), acting)


def _page(args: Args, log: EvaluationLog, action_repeat: int) -> str:
    title = agent_name({"agent": args.agent})
    records = [episode.record for episode in log.episodes]
    scores = [record.score_saber for record in records]
    protocol = protocol_of(log.record.settings)
    rules = protocol.sentence if protocol else "rules not recorded"
    trained = "" if log.record.trained_steps is None else f", trained for {log.record.trained_steps:,} agent steps"
    values: dict[str, Any] = {"evaluation_episodes": len(records), "seed": log.record.seed}
    values |= {"agent": args.agent} if ":" in args.agent else {}
    values |= {"game": args.game} if args.env == "atari" else {"env": args.env}
    asked = (
        *RULES,
        "precision",
        *args.marked("evaluation"),
        *(("force", *args.marked("policy")) if args.force else ()),
    )
    values |= {name: args.get(name) for name in asked if name in args.given}
    named = shlex.join(word for name, value in values.items() for word in (flag_of(name), str(value)))
    mean = f"{fmean(scores):.2f} +/- {stdev(scores) if len(scores) > 1 else 0:.2f}"
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": args.task, "type": args.task},
        "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": mean, "verified": False}],
    }
    head = {
        "pipeline_tag": "reinforcement-learning",
        "tags": [args.task, args.agent, "reinforcement-learning", "deep-reinforcement-learning", _LIBRARY],
        "model-index": [{"name": title, "results": [result]}],
    }
    return f"""---{_MARK}{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---

# {title} plays {args.task}

A snapshot of [Rainbow-IQN Ape-X](https://arxiv.org/abs/1908.04683){trained}.
`python test_multiple_seed.py --model <this folder> {named}` evaluates it again.

Protocol: {rules}; {counted(len(records), "episode")}, each from a seed of its own (--seed {log.record.seed}).

```text
{summary_of(args, log, action_repeat)}
```

`mean_reward` above is the mean of whole episodes, with their standard deviation. `scores.csv` has each episode,
`scores.json` how they were played (weights {log.record.weights}, commit {", ".join(log.record.commits)}), and
`settings.yaml` the settings.
"""
