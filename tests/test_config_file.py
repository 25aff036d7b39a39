"""--config: settings from a file, below the command line."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.args import ALL_GROUPS
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.options import config_file
from rainbow_iqn_apex.programs.common import launch_command
from rainbow_iqn_apex.programs.start import hosts
from rainbow_iqn_apex.programs.start import options as start_options
from rainbow_iqn_apex.programs.sweep import plan
from tests.interface import errors_of, read
from tests.processes import run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.yaml"


# --- the order of settings ---


def test_the_command_line_goes_before_the_file_and_that_before_preset_agent_and_defaults(file: Path) -> None:
    # Mutation: merge the file's values over the command line's, or below the preset's.
    file.write_text("batch_size: 64\nlog_interval: 900\nagent: impala\n")
    args = read("--config", file, "--preset", "cpu", "--batch-size", "7")
    assert (args.batch_size, args.log_interval, args.agent) == (7, 900, "impala")
    same = read("--agent", "impala", "--preset", "cpu", "--batch-size", "7", "--log-interval", "900")
    assert dataclasses.replace(args, config=None) == same
    assert (args.given, set(args.file_keys)) == (same.given | {"config"}, {"agent", "log_interval"})


def test_a_mixture_may_be_a_list(file: Path) -> None:
    # Mutation: any option may be a list.
    text = "queue:0.5,elite:0.25:40,uniform:1/4:90"
    same = read("--agent", "impala", "--replay-mix", text)
    for value in (text, "[" + text.replace(",", ", ") + "]", "".join(f"\n  - {part}" for part in text.split(","))):
        file.write_text(f"agent: impala\nreplay-mix: {value}\n")
        assert read("--config", file).own == same.own
    for wrong in ("replay-mix: [[queue:1]]", "replay-mix: {queue: 1}", "game: [pong]"):
        file.write_text(f"agent: impala\n{wrong}\n")
        with pytest.raises(UserError, match="expected a single value"):
            read("--config", file)


def test_lines_may_end_as_on_windows(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"# mine\r\ngame: pong\r\nbatch-size: 64\r\n")
    args = read("--config", file)
    assert (args.game, args.batch_size) == ("pong", 64)
    (tmp_path / "hosts").write_bytes(b"node1 4\r\nnode2 2 folder=/x\r\n")
    assert [host[:3] for host in hosts.read(tmp_path / "hosts", "/here")] == [("node1", 4, "/here"), ("node2", 2, "/x")]
    (tmp_path / "sweep.yaml").write_bytes(b"games: [pong]\r\nseeds: [1]\r\n")
    assert plan.read(tmp_path / "sweep.yaml")[0].games == ("pong",)


def test_the_file_may_choose_the_preset(file: Path) -> None:
    file.write_text("preset: cpu\nlog_interval: 7\n")
    args = read("--config", file)
    assert dataclasses.replace(args, config=None) == read("--preset", "cpu", "--log-interval", "7")
    assert read("--config", file, "--preset", "paper").learn_start == 80_000


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("# mine\nmemory-capacity: 2e5", "memory_capacity", 200_000),
        ("memory_capacity: '200000'", "memory_capacity", 200_000),
        ("memory_capacity: 200_000 # rows", "memory_capacity", 200_000),
        ("lr_IQN: 5e-5", "lr_IQN", 5e-5),  # which YAML takes for a text
        ("seed: 010", "seed", 10),  # which YAML takes for 8
        ("run_name: no", "run_name", "no"),
        ("record: 1:30", "record", Path("1:30").absolute()),
        ("run_name: 2020-02-31", "run_name", "2020-02-31"),
        ("run_name: grün", "run_name", "grün"),
        ("run_name: ''", "run_name", ""),
        ("disable_cuda: yes", "disable_cuda", True),
        ("disable_cuda: 0", "disable_cuda", False),
        ("V_min: -7.5\nagent: rainbow", "V_min", -7.5),
        ("path-to-results: my results", "path_to_results", Path("my results").absolute()),
        ("{seed: 7}", "seed", 7),
        ("", "seed", 123),
        ("\ufeffseed: 7", "seed", 7),
    ],
)
def test_a_value_is_read_as_on_the_command_line(file: Path, text: str, name: str, value: Any) -> None:
    file.write_text(text)
    found = read("--config", file).get(name)
    assert (found, type(found)) == (value, type(value))


def test_another_name_of_a_setting_goes_before_the_file_as_well(file: Path) -> None:
    file.write_text("rainbow_only: 1\nport_redis: 7000\n")
    assert read("--config", file).agent == "rainbow"
    assert read("--config", file, "--agent", "impala").agent == "impala"
    url = "redis://there:7001"
    assert read("--config", file, "--redis-url", url).redis_url == url
    assert read("--config", file, "--host-redis", "there").port_redis == 7000
    file.write_text(f"redis_url: {url}\n")
    assert (read("--config", file).redis_url, read("--config", file, "--port-redis", "7").redis_url) == (url, "")


# --- errors: one line each, with file and key ---


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("batch_sizes: 3", "batch_sizes: no such option; did you mean batch_size"),
        ("t_max: 3", "t_max: no such option; did you mean T_max"),
        ("xyzzy: 3", "xyzzy: no such option; --help lists all"),
        ("? [a]\n: 3", "line 1: expected the name of an option"),
        ('"a\\nb": 3', "'a\\nb': no such option; --help lists all"),
        ("config: other.yaml", "config: a configuration file cannot name another; leave it out"),
        ("seed: 1\nseed: 1", "seed: is given twice, first as seed; leave out one of them"),
        ("T-max: 1e6\nT_max: 1e7", "T_max: is given twice, first as T-max; leave out one of them"),
        ("batch_size: many", "batch_size: expected a whole number, got 'many'"),
        ("discount: .nan", "discount: expected a finite number, got '.nan'"),
        ("disable_cuda: maybe", "disable_cuda: expected 0, 1, true, false, yes or no, got 'maybe'"),
        ("render:", "render: expected a value"),
        ("game: [pong]", "game: expected a single value, got a list"),
        ("game: {pong: 1}", "game: expected a single value, got a mapping"),
        ("batch_size: 0", "batch_size: must be above 0, is 0"),
        ("T_max: 5", "T_max: must exceed --learn-start 80000, is 5"),
        ("run_name: !!python/object/apply:os.getpid []", "run_name: expected a single value, got a list"),
        ("run_name: !!python/name:os.getpid x", "run_name: expected a value without a tag"),
        ('run_name: "\\0absent"', "run_name: expected a text of one line"),
        ('render: "\\0absent"', "render: expected a text of one line"),
        ('path_to_results: "a\\nb"', "path_to_results: expected a text of one line"),
        ("- seed: 3", "expected a line `name: value` for each setting"),
        ("seed: 3\n---\nseed: 4", "line 2: expected a line `name: value` for each setting in YAML: but found another "),
        ("seed: [3", "line 1: expected a line `name: value` for each setting in YAML: expected ',' or ']', but got "),
        (
            "seed:\t3\n\tgame: x",
            "line 1: expected a line `name: value` for each setting in YAML: found character '\\t'",
        ),
        ("[" * 50_000, "expected a line `name: value` for each setting in YAML"),
        ("seed: \0", "expected a line `name: value` for each setting in YAML"),
        ("seed: 3" + " " * 100_000, "expected at most 100000 bytes; is it a configuration file?"),
        ("é" + "é" * 50_000, "expected at most 100000 bytes; is it a configuration file?"),  # cut within a letter
    ],
)
def test_a_mistake_names_file_and_key(file: Path, text: str, error: str) -> None:
    file.write_text(text)
    (line,) = errors_of("--config", file)
    assert line.startswith(f"{file}: {error}")


def test_what_is_no_text_is_refused(file: Path) -> None:
    file.write_bytes(bytes(range(256)))
    assert errors_of("--config", file) == [f"{file}: expected a text in UTF-8; is it a configuration file?"]
    for other in (file.parent, Path("/dev/zero"), file.parent / "missing.yaml"):
        (line,) = errors_of("--config", other)
        assert line.startswith(f"--config: no such file: {other}; expected")
    assert errors_of("--config") == ["--config: expected a value"]


PIECES = (
    "seed|game: pong|: |- |&a|*a|<<: *a|!!binary |!x|? |{|}|[|]|'|#|%YAML 9|---|...|ä|0x1f|2020-99-99|1e999|~".split(
        "|"
    )
)
PIECES += ["|", '"', "\\x", "\n", "  ", "\t", "\0", "\x85", "\u2028"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(data=st.binary(max_size=60) | TEXTS.map(str.encode))
def test_whatever_a_file_holds_gives_settings_or_lines_that_name_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(data)
    values, keys, errors = config_file.read(ALL_GROUPS, ["--config", str(file)])
    assert all(error.startswith(f"{file}: ") and len(error.splitlines()) == 1 for error in errors), errors
    assert values.keys() == keys.keys() | {"config"}


def test_aliases_do_not_grow(file: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    lines += ["<<: [*i, *i, *i]"]
    file.write_text("\n".join(lines))
    errors = errors_of("--config", file)
    assert [line.split(": ")[1] for line in errors] == [*"abcdefghi", "<<"]
    assert max(map(len, errors)) < 300


def test_all_mistakes_are_told_together_and_the_other_settings_are_named(file: Path) -> None:
    file.write_text("batch_size: 0\nlearn-start: 90000\nxyzzy: 4\n")
    errors = errors_of("--config", file, "--T-max", "85000", "--discount", "x", "--lr-IQN", "0")
    assert errors == [
        "--discount: expected a finite number, got 'x'",
        f"{file}: xyzzy: no such option; --help lists all",
        f"{file}: batch_size: must be above 0, is 0",
        "--lr-IQN: must be above 0, is 0.0",
        f"--T-max: must exceed --learn-start 90000, is 85000 ({file} sets learn-start)",
    ]


def test_a_mistake_on_the_command_line_is_not_the_file_s(file: Path) -> None:
    file.write_text("batch_size: 16\n")
    assert errors_of("--config", file, "--batch-size", "0") == ["--batch-size: must be above 0, is 0"]
    assert errors_of("--config", file, "--batch-size", "x") == ["--batch-size: expected a whole number, got 'x'"]


def test_the_server_may_not_be_named_twice(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@there")
    file.write_text("host_redis: here\n")
    (line,) = errors_of("--config", file)
    assert line.startswith(f"{file}: host_redis, --port-redis: the environment variable REDIS_URL names")
    file.write_text("redis_url: redis://:s3cret@there\n")
    (line,) = errors_of("--config", file)
    assert line.startswith(f"{file}: redis_url: must not hold a password") and "s3cret" not in line


def test_a_program_takes_a_file(file: Path) -> None:
    file.write_text("batch_size: 0\ngame: pongg\n")
    assert run("launch_actor.py", "--config", file).refused() == [
        f"launch_actor.py: error: {file}: batch_size: must be above 0, is 0",
        f"launch_actor.py: error: {file}: game: unknown game 'pongg'; did you mean pong?",
    ]


def test_an_error_that_comes_later_names_the_file_too(file: Path) -> None:
    file.write_text("host_redis: localhost\nport_redis: 1\n")
    code, _, errors = run("launch_learner.py", "--config", file)
    assert code == 2 and errors.startswith(f"launch_learner.py: error: {file}: host_redis localhost")


def test_an_actor_does_not_need_the_snapshot_that_the_learner_begins_with(file: Path) -> None:
    file.write_text(f"model: {file.parent / 'elsewhere.pth'}\n")
    assert errors_of("--config", file) == [f"{file}: model: no such file or folder: {file.parent / 'elsewhere.pth'}"]
    read("--config", file, "--id-actor", "0")
    read("--config", file, "--id-eval-actor", "0")


# --- other programs ---


def start(words: str) -> start_options.StartOptions:
    return start_options.read(shlex.split(words), {}, lambda: 0)


def test_the_start_script_hands_the_file_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text("preset: paper\nnb_actor: 2\nport_redis: 7000\ngpu_number: 1\ndisable_cuda: 1\n")
    found = start(f"--config {file} --game pong")
    assert found.preset_chosen == "", "the file has chosen"
    assert (found.args.nb_actor, found.server.port) == (2, 7000)
    assert found.command(-1)[3:] == ["--config", str(file), "--game", "pong"]
    file.write_text("disable_cuda: 1\n")
    assert start(f"--gpus 0 --config {file}").gpus == (0,)
    file.write_text("game: pong\n")
    assert start(f"--config {file}").launcher_options[-2:] == ("--preset", "cpu")
    for text, error in (
        ("id_actor: 0", "id_actor: is not for"),
        ("path_to_results: my.yaml", "path_to_results: expec"),
    ):
        file.write_text(f"{text}\npreset: paper\n")
        with pytest.raises(UserError) as caught:
            start(f"--config {file}")
        assert str(caught.value).startswith(f"{file.name}: {error}")


def test_the_command_for_another_process_names_the_file_alone(file: Path) -> None:
    file.write_text("game: pong\nnb_actor: 3\nbatch_size: 7\n")
    args = read("--config", file, "--batch-size", "8")
    start, *options = launch_command(args, 1).split(" --")
    assert start == "python launch_actor.py"
    assert sorted(options) == ["batch-size 8", f"config {file}", "id-actor 1"]
