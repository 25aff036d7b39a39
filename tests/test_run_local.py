"""run_local.sh: the start script by four words, with stand-ins for the launchers."""

import pytest

from tests.processes import Ended, run
from tests.start_script import Workplace, go_on_with

WORDS = "run_local.sh ENVIRONMENT AGENT ACTORS ENVIRONMENTS_PER_ACTOR [OPTION ...]"


def call(workplace: Workplace, *words: str) -> Ended:
    script = str(workplace.folder / "run_local.sh")
    return run(script, *words, program="bash", cwd=workplace.folder.parent, environment=workplace.environment)


@pytest.mark.parametrize(
    ("environment", "given"),
    [("pong", ["--game", "pong"]), ("gymnasium:CartPole-v1", ["--env", "gymnasium:CartPole-v1"])],
)
def test_four_words_start_a_run_and_options_may_follow(
    workplace: Workplace, environment: str, given: list[str]
) -> None:
    # Mutations: give --game for both; leave out the options that follow.
    more = ["--T-max", "90000", *workplace.address, *workplace.preset]
    workplace.start_by("run_local.sh", environment, "impala", 2, 3, *more)
    expected = [*given, "--agent", "impala", "--nb-actor", "2", "--nb-env-per-actor", "3", *more]
    assert workplace.argv("learner") == ["launch_learner.py", *expected]
    for i in range(2):  # each of them must be there before Ctrl-C, or it has nothing to save
        assert workplace.argv(f"actor{i}") == ["launch_actor.py", "--id-actor", str(i), *expected]
    workplace.stop()
    assert all(workplace.has_saved(name) for name in ("learner", "actor0", "actor1"))
    assert go_on_with(workplace)[0].endswith(" ".join(expected))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], f"expected four words before any option, got 0: {WORDS}"),
        (["pong", "impala", "2"], f"expected four words before any option, got 3: {WORDS}"),
        (["pong", "impala", "two", "3"], f"ACTORS: expected a whole number, got 'two'; the words are {WORDS}"),
        (
            ["pong", "impala", "2", "--T-max"],
            f"ENVIRONMENTS_PER_ACTOR: expected a whole number, got '--T-max'; the words are {WORDS}",
        ),
        (["--game", "pong", "2", "3"], f"expected four words before any option: {WORDS}"),
    ],
)
def test_wrong_words_are_refused_in_a_line_and_nothing_starts(
    workplace: Workplace, words: list[str], line: str
) -> None:
    assert call(workplace, *words) == Ended(2, "", f"run_local.sh: error: {line}\n")
    workplace.assert_nothing_left()


def test_help(workplace: Workplace) -> None:
    code, out, errors = call(workplace, "--help")
    assert (code, errors) == (0, "") and out.startswith(f"usage: bash {WORDS}\n")
