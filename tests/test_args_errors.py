"""Values, options and names that are wrong get one line each."""

import pytest

from tests.interface import FLAGS, INTERFACE, agent_of, errors_of, read, value_of

NUMBERS = [option for option, default in INTERFACE if type(default) in (int, float)]
WHOLE_NUMBERS = [option for option, default in INTERFACE if type(default) is int]


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


def test_all_errors_are_reported_together() -> None:
    errors = errors_of("--batch-size", "0", "--lr-IQN", "x", "--sede", "4", "--discount", "2", "--game", "pongg")
    assert len(errors) == 5
    for option in ("--batch-size: ", "--lr-IQN: ", "--sede: ", "--discount: ", "--game: "):
        assert sum(error.startswith(option) for error in errors) == 1


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


@pytest.mark.parametrize("argv", [["--xyzzy"], ["word"], ["3"], ["-x"]])
def test_what_resembles_no_option(argv: list[str]) -> None:
    assert errors_of(*argv)[0].startswith(f"{argv[0]}: no such option")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("cartpole", "did you mean --env gymnasium:CartPole-v1?"),
        ("Pendulum-v1", "did you mean --env gymnasium:Pendulum-v1?"),
        ("ms-pacman", "ms_pacman is a game: --game ms_pacman"),
        ("xyzzy", "--env atari and --game, --env gymnasium:CartPole-v1, or --env package.module:make"),
    ],
)
def test_an_unknown_environment_comes_with_what_to_type(name: str, meant: str) -> None:
    assert errors_of("--env", name) == [f"--env: there is no environment {name!r}; {meant}"]


def test_an_unknown_game_comes_with_close_names() -> None:
    (error,) = errors_of("--game", "space_invader")
    assert error.startswith("--game: ")
    assert "'space_invader'" in error
    assert "space_invaders" in error
    (error,) = errors_of("--game", "zzzzzz")
    assert "pong" in error  # nothing is close: all of them
    for wrong in ("Pong", "pong ", "PongNoFrameskip-v4", ""):
        assert "pong" in errors_of("--game", wrong)[0]
    assert errors_of("--game", "PongNoFrameskip-v4") == [
        "--game: unknown game 'PongNoFrameskip-v4'; did you mean pong?"
    ]


@pytest.mark.parametrize("option", ["--path-to-results", "--model", "--record"])
def test_an_empty_path_is_refused(option: str) -> None:
    assert (
        errors_of(option, "")
        == errors_of(f"{option}=")
        == [f"{option}: expected a path, got ''; the present folder is ."]
    )


def test_other_environments_name_their_own_games() -> None:
    assert read("--env", "gymnasium:CartPole-v1", "--game", "anything").game == "anything"


def test_what_follows_the_colon_of_an_environment() -> None:
    for wrong in ("atari:pong", "atari:"):
        assert errors_of("--env", wrong) == [f"--env: expected atari alone, got {wrong!r}; --game names the game"]
    for wrong in ("gymnasium", "gymnasium:"):
        assert errors_of("--env", wrong) == ["--env: gymnasium needs a name, as in gymnasium:CartPole-v1"]
