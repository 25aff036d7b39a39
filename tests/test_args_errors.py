"""Values, options and names that are wrong get one line each."""

import dataclasses
import shlex

import pytest

from rainbow_iqn_apex.args import ALL_GROUPS
from rainbow_iqn_apex.options import command_line
from tests.interface import FLAGS, INTERFACE, agent_of, errors_of, read, value_of

NUMBERS = [option for option, default in INTERFACE if type(default) in (int, float)]
WHOLE_NUMBERS = [option for option, default in INTERFACE if type(default) is int]

LEARNING_RATES = {
    "rainbow_iqn": "lr-IQN", "rainbow": "lr-Rainbow", "btr": "lr-IQN", "impala": "lr-IMPALA", "r2d2": "lr-R2D2",
    "sac": "lr-SAC", "ppo": "lr-on-policy", "vmpo": "lr-on-policy", "awr": "lr-on-policy", "vpg": "lr-on-policy",
    "vtrace": "lr-on-policy", "pqn": "lr-PQN", "reinforce": "lr-REINFORCE",
}  # fmt: skip


@pytest.mark.parametrize("option", NUMBERS)
def test_numbers_must_be_finite_numbers(option: str) -> None:
    for text in ("nan", "inf", "Infinity", "1e999", "one", "", "0x10", "1,5", "9" * 5000):
        assert any(line.startswith(f"{option}: expected a ") for line in errors_of(option, text)), text


@pytest.mark.parametrize("option", WHOLE_NUMBERS)
def test_whole_numbers_must_be_whole(option: str) -> None:
    for text in ("1.5", "1.0", "1.5e0", "1e-3", "12e-1", "1.25e1", "1e", "e6", "1e6.0", "1e100", "1e999999999"):
        assert any(line.startswith(f"{option}: expected a whole number") for line in errors_of(option, text)), text


@pytest.mark.parametrize(
    ("text", "value"), [("1e6", 10**6), ("1E6", 10**6), ("2.5e5", 250_000), ("+1e+6", 10**6), ("3e0", 3), ("1_0", 10)]
)
def test_whole_numbers_may_have_an_exponent(text: str, value: int) -> None:
    found = value_of("--target-update", "--target-update", text)
    assert found == value and type(found) is int
    assert read("--T-max", "1e8").T_max == 100_000_000
    assert errors_of("--batch-size=-1e2") == errors_of("--batch-size", "-100")


@pytest.mark.parametrize("text", ["-1e1", "-10", "-10.0", "-.1E+2"])
def test_numbers_below_zero(text: str) -> None:
    assert value_of("--V-min", "--V-min", text) == -10.0
    assert value_of("--V-min", f"--V-min={text}") == -10.0


def test_a_number_may_be_long() -> None:
    for option in WHOLE_NUMBERS:
        assert any(line.startswith("--batch-size: ") for line in errors_of(option, "9" * 400, "--batch-size=-1"))


@pytest.mark.parametrize("option", sorted({option for option, _ in INTERFACE} - FLAGS))
def test_a_missing_value(option: str) -> None:
    assert f"{option}: expected a value" in errors_of(option)
    assert f"{option}: expected a value" in errors_of(option, "--force")


@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("--proba-sticky-actions", ["-0.1", "1.1"]),
        ("--priority-weight", ["-0.1", "1.1"]),
        ("--discount", ["-0.1", "1.1"]),
        ("--port-redis", ["0", "65536", "-1"]),
        ("--atoms", ["1", "0"]),
        ("--batch-size", ["0", "-3"]),
        ("--learn-start", ["0", "1000001"]),
        ("--reward-clip", ["-1"]),
        ("--gpu-number", ["-1"]),
        ("--seed", ["-1"]),
        ("--id-actor", ["-2", "1"]),
        ("--nb-eval-actors", ["-1", "4097"]),
        ("--id-eval-actor", ["-2", "4096"]),
        ("--T-max", ["80000", "0", "1e99"]),
        ("--V-min", ["10", "11"]),
        ("--model", ["/no/such/model.pth", "/dev/null"]),
        ("--nb-actor", ["0"]),
        ("--multi-step", ["0", "1e5"]),
        ("--hidden-size", ["1e9"]),
        ("--learner-threads", ["-1", "1e6"]),
        ("--weight-synchro-frequency", ["1e30"]),
    ],
)
def test_values_that_make_no_sense(option: str, texts: list[str]) -> None:
    for text in texts:
        assert any(line.startswith(f"{option}: ") for line in errors_of(option, text, *agent_of(option)))


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("--t-max", "--T-max"),
        ("--leanr-start", "--learn-start"),
        ("--nb-actors", "--nb-actor"),
        ("--memory_capacity", "--memory-capacity"),
        ("--lr-iqn=1", "--lr-IQN"),
        ("--synchronise-actors-with-learner", "--synchronize-actors-with-learner"),
        ("--batch", "--batch-size"),  # no abbreviations, either
    ],
)
def test_an_unknown_option_comes_with_a_proposal(typo: str, meant: str) -> None:
    (error,) = errors_of(typo, "3") if "=" not in typo else errors_of(typo)
    assert error.startswith(f"{typo}: no such option; did you mean ")
    assert meant in error


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--learning-rate 1e-4", "--lr-IQN"),
        ("--rainbow-only 1 --learning_rate 1e-4", "--lr-Rainbow"),
        *((f"--agent {agent} --lr=1e-4", f"--{lr}") for agent, lr in LEARNING_RATES.items()),
        ("--gamma 0.99", "--discount"),
        ("--total-timesteps 1e6", "--T-max"),
        ("--num-envs 8", "--nb-env-per-actor"),
        ("--track", "--wandb"),
        ("--buffer-size 10000", "--memory-capacity"),
        ("--n-steps 5", "--multi-step"),
        ("--agent ppo --n-steps 128", "--unroll-length"),
        ("--agent sac --tau 0.005", "--target-rate"),
    ],
)
def test_other_libraries_names_lead_to_ours(words: str, meant: str) -> None:
    # Mutation: the options of all agents, in the place of the chosen one's.
    (error,) = errors_of(*words.split())
    assert error.endswith(f": no such option; did you mean {meant}?")


def test_what_other_libraries_call_our_options_is_none_of_ours() -> None:
    ours = {f.name.lower() for group in ALL_GROUPS for f in dataclasses.fields(group)}
    theirs = [name for names in command_line._OTHER_LIBRARIES.values() for name in names.split()]
    assert len(theirs) == len(set(theirs)) and not ours & {*theirs}
    for name in " ".join(command_line._OTHER_LIBRARIES).lower().split():
        assert name in ours or (name.endswith("_") and any(one.startswith(name) for one in ours)), name


@pytest.mark.parametrize("argv", [["--tau"], ["--xyzzy"], ["word"], ["3"], ["-x"]])
def test_what_resembles_no_option(argv: list[str]) -> None:
    assert errors_of(*argv)[0].startswith(f"{argv[0]}: no such option")


_HOST = "--host-redis: expected the name or address of a machine; --redis-url takes a URL"
_NAME = "--run-name: expected at most 128 letters, digits, '_', '.' and '-', and none of the last two first"
_BAD_NAMES = ("x:log:y", "x}", "{x", "x/1", "x y", "../x", "-x", ".", "x" * 129, "x\n", "\x1b[2J")
_PATH = "expected a path, got ''; the present folder is ."
_TURNS = "--synchronize-actors-with-learner: --agent reinforce takes turns with its actors; leave the option out"
_NO_LOCKSTEP = "--agent reinforce --synchronize-actors-with-learner 0"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--nb-actor -1", "--nb-actor: must be above 0, is -1"),  # Mutation: compare the actor's number with it, too
        ("--nb-eval-actors -1", "--nb-eval-actors: must lie in 0 to 4096, is -1"),
        ("--id-eval-actor 2 --nb-eval-actors 2", "--id-eval-actor: 2 is not one of --nb-eval-actors 2 (0 to 1)"),
        ("--id-eval-actor 0 --id-actor 0", "--id-actor, --id-eval-actor: an actor has either of them"),
        ("--atoms 1", "--atoms: must lie in 2 to 10000, is 1"),  # of another agent
        ("--keep-checkpoints 1e12", "--keep-checkpoints: must lie in 0 to 10000, is 1000000000000"),
        ("--evaluation-workers -1", "--evaluation-workers: must not be below 0, is -1"),
        ("--record", "--record: expected a value"),
        (
            "--agent dqn",
            "--agent: expected rainbow_iqn, rainbow, btr, impala, r2d2, sac, ppo, vmpo, awr, vpg, vtrace, pqn, "
            "reinforce or package.module:Class, got 'dqn'",
        ),
        (
            "--agent rainbow --rainbow-only 0",
            "--rainbow-only: False contradicts --agent rainbow; leave out --rainbow-only",
        ),
        (
            "--agent rainbow_iqn --rainbow-only 1",
            "--rainbow-only: True contradicts --agent rainbow_iqn; leave out --rainbow-only",
        ),
        (_NO_LOCKSTEP, _TURNS),
        (f"{_NO_LOCKSTEP} --force", _TURNS),
        (f"{_NO_LOCKSTEP} --nb-actor 6", _TURNS),
        ("--preset other", "--preset: expected paper, cpu or fast, got 'other'"),
        (
            "--architecture other",
            "--architecture: expected canonical, data-efficient, deep, deep-2 or deep-football, got 'other'",
        ),
        ("--precision other", "--precision: expected float32, bfloat16 or auto, got 'other'"),
        ("--replay-device other", "--replay-device: expected auto, cpu or cuda, got 'other'"),
        ("--host-redis redis://there", _HOST),
        ("--host-redis user:s3cret@there", _HOST),
        *((f"--run-name={shlex.quote(name)}", f"{_NAME}, got {name!r}") for name in _BAD_NAMES),
        ("--redis-url there:7000", "--redis-url: expected redis://host:port/db, or rediss:// for TLS"),
        ("--inference-port 7000", "--inference-port: is for other machines; name this one with --inference-host, too"),
        ("--path-to-results ''", f"--path-to-results: {_PATH}"),
        ("--model=", f"--model: {_PATH}"),
        ("--record=", f"--record: {_PATH}"),
        ("--game PongNoFrameskip-v4", "--game: unknown game 'PongNoFrameskip-v4'; did you mean pong?"),
        (
            "--env ''",
            "--env: expected atari and --game, --env gymnasium:CartPole-v1, or --env package.module:make, got ''",
        ),
        (f"--model {'x' * 300}", f"--model: no such file or folder: {'x' * 300}"),
        ("--env atari:", "--env: expected atari alone, got 'atari:'; --game names the game"),
        ("--env atari:pong", "--env: expected atari alone, got 'atari:pong'; --game names the game"),
        ("--env gymnasium", "--env: gymnasium needs a name, as in gymnasium:CartPole-v1"),
        ("--env gymnasium:", "--env: gymnasium needs a name, as in gymnasium:CartPole-v1"),
        ("--env cartpole", "--env: there is no environment 'cartpole'; did you mean --env gymnasium:CartPole-v1?"),
        (
            "--env Pendulum-v1",
            "--env: there is no environment 'Pendulum-v1'; did you mean --env gymnasium:Pendulum-v1?",
        ),
        ("--env ms-pacman", "--env: there is no environment 'ms-pacman'; ms_pacman is a game: --game ms_pacman"),
        (
            "--env xyzzy",
            "--env: there is no environment 'xyzzy'; --env atari and --game, --env gymnasium:CartPole-v1, or --env "
            "package.module:make",
        ),
    ],
)
def test_a_mistake_gets_one_line(words: str, line: str) -> None:
    assert errors_of(*shlex.split(words)) == [line]


def test_a_game_whose_name_is_close_to_none_comes_with_all_names() -> None:
    for wrong in ("zzzzzz", ""):
        (error,) = errors_of("--game", wrong)
        assert error.startswith(f"--game: unknown game '{wrong}'; there are adventure, ") and "pong, " in error


def test_other_environments_name_their_own_games() -> None:
    assert read("--env", "gymnasium:CartPole-v1", "--game", "anything").game == "anything"
