"""Makes a command line of frozen dataclasses: one option per field, a grouped --help, and all mistakes at once.

`args.py` defines the options.
"""

import argparse
import dataclasses
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from rainbow_iqn_apex import __version__
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import expand_home, short_path
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.text import nearest, suggestion
from rainbow_iqn_apex.memory.broker.access import hide_passwords

_TRUE, _FALSE = {"1", "true", "yes"}, {"0", "false", "no"}
_EXIT_CODES = (
    "Exit codes: 0 done, or stopped in good order; 1 cannot go on; 2 bad command, or diverged; "
    "3 inference server lost in lockstep."
)
CALLED_AS = "RAINBOW_CALLED_AS"  # variable: what its user has called instead of the start script's module
COMMANDS = {  # of pyproject.toml, by the scripts in whose place they stand
    "start_learning_atari.sh": "apex-train",
    "launch_learner.py": "apex-learner",
    "launch_actor.py": "apex-actor",
    "launch_inference.py": "apex-inference",
    "test_multiple_seed.py": "apex-eval",
    "saber_report.py": "apex-report",
    "run_status.py": "apex-status",
    "dashboard.py": "apex-dashboard",
    "sweep.py": "apex-sweep",
}
# Our options, by what Stable-Baselines3 and its RL Zoo, CleanRL, Sample Factory, RLlib or Dopamine call them. Where
# agents have options of their own for the same thing, several stand here; one that ends with _ is a beginning.
_OTHER_LIBRARIES = {
    "lr_": "learning_rate lr",
    "adam_eps_ rms_eps_": "adam_epsilon optimizer_epsilon",
    "discount": "gamma",
    "T_max": "total_timesteps n_timesteps num_timesteps max_timesteps total_steps train_for_env_steps training_steps "
    "num_frames total_frames max_frames",
    "nb_env_per_actor": "num_envs n_envs num_env local_num_envs num_envs_per_worker num_envs_per_env_runner",
    "nb_actor": "num_workers n_workers workers num_actors num_env_runners num_rollout_workers",
    "agent": "algo algorithm",
    "env": "env_id env_name environment_name gym_id",
    "game": "game_name rom",
    "proba_sticky_actions": "sticky_actions repeat_action_probability",
    "action_repeat": "frame_skip frameskip env_frameskip",
    "history_length": "frame_stack env_framestack num_stack stack_size",
    "memory_capacity": "buffer_size replay_buffer_size replay_capacity replay_size memory_size",
    "learn_start": "learning_starts min_replay_history start_steps start_timesteps warmup_steps",
    "replay_frequency samples_per_insert": "train_freq train_frequency update_period",
    "target_update target_period": "target_network_frequency target_update_interval target_update_period",
    "target_rate": "tau polyak",
    "unroll_length multi_step": "n_steps num_steps n_step update_horizon rollout rollout_length",
    "epochs": "n_epochs update_epochs num_epochs",
    "minibatches": "num_minibatches n_minibatches num_batches_per_epoch",
    "trace_lambda": "gae_lambda q_lambda td_lambda lambda_",
    "clip_epsilon": "clip_range clip_coef ppo_clip_ratio clip_param",
    "entropy_cost": "ent_coef entropy_coef entropy_coeff exploration_loss_coeff",
    "baseline_cost": "vf_coef vf_loss_coeff value_loss_coeff",
    "max_gradient_norm": "max_grad_norm clip_grad_norm grad_clip",
    "normalise_advantages": "norm_adv normalize_advantage normalize_advantages",
    "epsilon_end exploration_end": "exploration_final_eps end_e epsilon_train",
    "epsilon_decay exploration_steps": "exploration_fraction epsilon_decay_period",
    "priority_exponent_": "prioritized_replay_alpha per_alpha alpha",
    "priority_weight": "prioritized_replay_beta per_beta beta beta0",
    "atoms": "n_atoms num_atoms",
    "num_tau_samples": "n_quantiles num_quantiles",
    "hidden_size mlp_size": "hidden_dim hidden_units net_arch fcnet_hiddens encoder_mlp_layers",
    "lstm_size": "lstm_hidden_size lstm_cell_size rnn_size",
    "reward_clip": "clip_rewards reward_clipping",
    "wandb": "track with_wandb use_wandb",
    "tensorboard": "tensorboard_log",
    "path_to_results": "log_dir logdir log_folder train_dir base_dir save_dir output_dir results_dir",
    "run_name": "exp_name experiment run_id",
    "model": "trained_agent load_path load_checkpoint checkpoint resume_from",
    "record": "capture_video save_video record_video",
    "evaluation_interval": "eval_freq eval_interval save_freq checkpoint_frequency save_every_steps",
    "evaluation_episodes": "eval_episodes n_eval_episodes num_eval_episodes",
    "learner_threads": "num_threads",
    "disable_cuda": "cuda no_cuda",
    "gpu_number": "device gpu gpu_id cuda_device",
    "host_redis": "redis_host redis_server",
    "port_redis": "redis_port",
}
_HELP = frozenset({"-h", "--help"})
COMPLETION = "--print-completion"
VERSION = "--version"
_SHELLS = ("bash", "zsh", "fish", "tcsh")
_ABSENT = "\0absent"  # a value that no command line can hold: the option was given without one


class Parser(argparse.ArgumentParser):
    """A parser that raises UserError for a wrong command line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with argparse's message."""
        raise UserError(message.removeprefix("argument "))


def devices(text: str) -> tuple[int, ...]:
    """Return the numbers of CUDA devices, as a `type` of argparse."""
    if not re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise argparse.ArgumentTypeError(f"expected device numbers separated by commas, got {text!r}")
    return tuple(map(int, text.split(",")))


def path(text: str) -> Path:
    """Return a path, in which ~ stands for the home folder, as a `type` of argparse."""
    try:
        return expand_home(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Return the number of a port, as a `type` of argparse."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"expected 1 to 65535, got {text!r}")
    return int(text)


def read(
    groups: Sequence[type], argv: Sequence[str] | None, used: Set[str] = frozenset()
) -> tuple[dict[str, Any], list[str]]:
    """Read the values that a command line gives, by field, and the command line's mistakes.

    Groups may share fields. A request for help is ignored. An unknown option brings up those that are `used`, if any
    are named, rather than other agents'.
    """
    fields = {f.name: f for group in groups for f in dataclasses.fields(group)}
    words = [word for word in _words(argv) if word not in _HELP]
    given, others = _reader(tuple(fields.values())).parse_known_args(_join_negative_numbers(words))
    flags = [flag_of(name) for name in fields if name in (used or fields)]
    errors = [unknown(text, flags) for text in others if text.startswith("-")]
    errors = errors or [unknown(text, flags) for text in others]
    values: dict[str, Any] = {}
    for f in fields.values():
        text = getattr(given, f.name)
        if text is not None:
            try:
                values[f.name] = convert(f, text)
            except ValueError as error:
                errors.append(f"{flag_of(f.name)}: {error}")
    return values, errors


@cache  # two hundred options take ten milliseconds
def _reader(fields: tuple[dataclasses.Field[Any], ...]) -> Parser:
    """Return a parser that leaves a missing value to those who report all mistakes together."""
    parser = Parser(add_help=False, allow_abbrev=False)
    for f in fields:
        parser.add_argument(*_spellings(f), dest=f.name, nargs="?", const=_ABSENT)
    return parser


def asks_for_help(argv: Sequence[str] | None) -> bool:
    """Return whether a command line asks for help."""
    return not _HELP.isdisjoint(_words(argv))


def print_help(groups: Sequence[type], program: str, description: str, defaults: dict[str, Any]) -> NoReturn:
    """Print every option of the groups, each group under its docstring, and leave with exit code 0.

    `defaults` are those of an agent, in the place of a field's.
    """
    _parser(groups, program, description, defaults, {}).parse_args(["--help"])
    raise AssertionError("argparse has not left")


def asks_for_completion(argv: Sequence[str] | None) -> bool:
    """Return whether a command line asks for a shell's completion script; nothing else may stand before that."""
    return _words(argv)[:1] == [COMPLETION]


def print_completion(
    groups: Sequence[type],
    program: str,
    choices: Mapping[str, Sequence[str]],
    others: Sequence[argparse.ArgumentParser] = (),
) -> NoReturn:
    """Print a script that completes every option of the groups, and leave; raises UserError for an unknown shell.

    `choices` are the values of options, by name, that have no fixed choices. `others` have options besides.
    """
    _parser(groups, program, "", {}, choices, others).parse_args(sys.argv[1:])
    raise AssertionError("argparse has not left")


def _parser(
    groups: Sequence[type],
    program: str,
    description: str,
    defaults: dict[str, Any],
    choices: Mapping[str, Sequence[str]],
    others: Sequence[argparse.ArgumentParser] = (),
) -> Parser:
    """Return a parser of the options of the groups; of those that groups share, the first group's."""
    usage = f"{program} [options]"
    parser = Parser(prog=program, usage=usage, description=description, epilog=_EXIT_CODES, parents=others)
    add_completion_and_version(parser)
    known = set[str]()
    for group in groups:
        section = parser.add_argument_group(heading(group))
        for f in (f for f in dataclasses.fields(group) if f.name not in known):
            known.add(f.name)
            section.add_argument(
                *_spellings(f),
                dest=f.name,
                nargs="?" if f.metadata["flag"] else None,
                type=path if _is_path(f) else str,
                choices=choices.get(f.name, f.metadata["bounds"].choices) or None,
                metavar=_kind(f),
                help=_help(f, defaults),
            )
    return parser


def heading(group: type) -> str:
    """Return the title of a group of options: its docstring, or its name if Python has left that out."""
    text = group.__doc__ or ""
    if text and not text.startswith(f"{group.__name__}("):  # which dataclasses write themselves
        return text
    return " ".join(re.findall("[A-Z][a-z0-9]*", group.__name__.removesuffix("Options"))).lower() or group.__name__


def _words(argv: Sequence[str] | None) -> Sequence[str]:
    return sys.argv[1:] if argv is None else argv


def _spellings(f: dataclasses.Field[Any]) -> list[str]:
    return [flag_of(f.name), *filter(None, [f.metadata["short"]])]


def _join_negative_numbers(argv: Sequence[str]) -> list[str]:
    """Join numbers below 0 to their options: argparse takes those with an exponent for options."""
    joined: list[str] = []
    for word in argv:
        if joined and re.fullmatch("--[^=]+", joined[-1]) and re.fullmatch(r"-\.?[0-9][0-9.eE+-]*", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def compose(program: str, values: dict[str, Any]) -> str:
    """Return the command, to be copied into a shell, that starts a program with these settings."""
    texts = {name: short_path(value) if isinstance(value, Path) else str(value) for name, value in values.items()}
    words = [word for name, text in texts.items() for word in (flag_of(name), text)]
    return shlex.join([*(["python"] if name_of(program) == program else []), name_of(program), *words])


def name_of(program: str) -> str:
    """Return the name of a program as its user knows it: a script, or the command if that is what runs."""
    return COMMANDS[program] if _is_command() else program


def run_by(program: str) -> list[str]:
    """Return the words that run a script, from any folder, or the command in its place, beside the one that runs."""
    if _is_command():
        return [sys.executable, str(Path(sys.argv[0]).with_name(COMMANDS[program]))]
    if Path(program).is_file():
        return [sys.executable, program]
    return [sys.executable, "-m", f"rainbow_iqn_apex.{program.removesuffix('.py')}"]


def _is_command() -> bool:
    return Path(sys.argv[0]).name in COMMANDS.values()


def fail(program: str, error: UserError, code: int = 2) -> NoReturn:
    """Print a user's error, one line per bad setting, and leave.

    Any option may hold a URL by mistake, so passwords are removed here.
    """
    for line in str(error).splitlines():
        print(f"{program}: error: {hide_passwords(line)}", file=sys.stderr)
    sys.exit(code)


def _kind(f: dataclasses.Field[Any]) -> str:
    names = {bool: "BOOL", int: "INT", float: "FLOAT"}
    return "PATH" if _is_path(f) else names.get(_type(f), "TEXT")


def _type(f: dataclasses.Field[Any]) -> type:
    return Path if f.type == Path | None else f.type  # type: ignore[return-value]


def _is_path(f: dataclasses.Field[Any]) -> bool:
    return _type(f) is Path or bool(f.metadata["path"])


def _help(f: dataclasses.Field[Any], defaults: dict[str, Any]) -> str:
    value = defaults.get(f.name, f.default)
    default = "none" if value is None else "off" if f.metadata["flag"] else str(value)
    text = str(f.metadata["help"]).replace("%", "%%")
    return text if "[default" in text else f"{text} [{default}]"


def convert(f: dataclasses.Field[Any], text: str) -> Any:
    """Return the value that a text gives a field; raises ValueError, with what was expected."""
    kind = _type(f)
    if text == _ABSENT:
        if f.metadata["flag"]:
            return True
        raise ValueError("expected a value")
    if kind is bool:
        return _boolean(text)
    if kind is int or kind is float:
        return _number(kind, text)
    if kind is Path and not text:
        raise ValueError("expected a path, got ''; the present folder is .")
    return kind(expand_home(text)) if text and _is_path(f) else kind(text)


def _number(kind: type, text: str) -> Any:
    try:
        value = kind(_plain(text) if kind is int else text)
    except ValueError:
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected {'a whole' if kind is int else 'a finite'} number, got {text!r}")
    return value


def _plain(text: str) -> str:
    """Write a whole number with an exponent, such as 1e6 or 2.5e3, in digits; return any other text as it is."""
    if not re.fullmatch(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?[eE]\+?[0-9]{1,2}", text):
        return text
    value = Decimal(text)
    return str(int(value)) if value == int(value) else text


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"expected 0, 1, true, false, yes or no, got {text!r}")


def unknown(text: str, known: Sequence[str]) -> str:
    """Return the line about a text that names no option, with those of the known names that are close."""
    name = text.split("=")[0]
    ours = _named_elsewhere(name, known)
    close = nearest(name, known) if ours is None else ours
    return f"{text}: no such option; {suggestion(close, '--help lists all')}"


def _named_elsewhere(text: str, known: Sequence[str]) -> list[str] | None:
    """Return those of the known names that stand for another library's; None if no library has it."""
    name = _plain_name(text)
    meant = next((ours for ours, theirs in _OTHER_LIBRARIES.items() if name in theirs.split()), None)
    if meant is None:
        return None
    return [
        one
        for ours in meant.split()
        for one in known
        if (_plain_name(one).startswith(ours.lower()) if ours.endswith("_") else _plain_name(one) == ours.lower())
    ]


def _plain_name(text: str) -> str:
    return text.lstrip("-").replace("-", "_").lower()


def add_completion_and_version(parser: argparse.ArgumentParser) -> None:
    """Add `--print-completion` and `--version` to a parser that has all its other options."""
    text = "print a script that completes this command's options in a shell, and leave"
    parser.add_argument(
        COMPLETION, choices=_SHELLS, metavar="SHELL", action=_PrintCompletion, help=f"{text}: {', '.join(_SHELLS)}"
    )
    parser.add_argument(VERSION, action=_PrintVersion, nargs=0, help="print release and commit, and leave")


def answer_version(program: str, words: Sequence[str] | None = None) -> None:
    """Print release and commit, and leave with exit code 0, if a command line has `--version`."""
    if VERSION in _words(words):
        print(_version(program))
        sys.exit(0)


def _version(program: str) -> str:
    """Return the line of `--version`; the commit is the checkout's, "unknown" where the program is installed."""
    from rainbow_iqn_apex.common.checkout import commit  # asks git, and only --version needs it

    return f"{program} {__version__} (commit {commit()})"


class _PrintVersion(argparse.Action):
    """Print release and commit, and leave with exit code 0."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(_version(parser.prog))
        parser.exit()


class _PrintCompletion(argparse.Action):
    """Print a script for the value's shell, and leave with exit code 0.

    The script is static, so that pressing TAB starts no program: starting one takes a third of a second.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        _option_string: str | None = None,
    ) -> None:
        import shtab  # slow to load

        for action in parser._actions:
            if action.type is path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, str(values)))
        parser.exit()
