"""Options are read as the outward interface has them, alone and together."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rainbow_iqn_apex.agents.rainbow.options import RainbowOptions
from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.options.agent_options import PRESETS, announce_preset, describe_preset, preset_of
from tests.interface import BOOLEANS, COMMANDS, FLAGS, INTERFACE, agent_of, errors_of, name_of, read, value_of


@pytest.mark.parametrize(("option", "default"), INTERFACE)
def test_defaults(option: str, default: Any) -> None:
    found = value_of(option)
    assert found == (default.absolute() if isinstance(default, Path) else default)
    assert type(found) is type(default)


def other_value(option: str, default: Any, folder: Path) -> tuple[str, Any]:
    """A text that means another value than the default, and can stand alone."""
    texts = {
        "--game": ("ms_pacman", "ms_pacman"),
        "--host-redis": ("10.0.0.7", "10.0.0.7"),
        "--V-min": ("-7.5", -7.5),
        "--id-actor": ("0", 0),
        "--T-max": ("60_000_000", 60_000_000),
        "--nb-actor": ("3", 3),
        "--synchronize-actors-with-learner": ("1", True),  # its other value needs more actors
        "--path-to-results": (str(folder), folder),
        "--model": (str(folder / "model.pth"), folder / "model.pth"),
    }
    if option in texts:
        return texts[option]
    if isinstance(default, bool):
        return "1", True
    other = default + 1 if isinstance(default, int) else default / 2
    return str(other), other


@pytest.mark.parametrize(("option", "default"), INTERFACE)
def test_every_option_is_read(option: str, default: Any, tmp_path: Path) -> None:
    (tmp_path / "model.pth").touch()
    text, value = other_value(option, default, tmp_path)
    for argv in ([option, text], [f"{option}={text}"], [option, text, option, text]):
        assert value_of(option, *argv) == value
        argv = [*argv, *agent_of(option)]
        back = read(*argv).replace(**{name_of(option): default})
        nothing = read(*(word for word in argv if word in agent_of(option)))
        assert back == nothing


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_interface(command: str) -> None:
    assert read(*command.split()).game == "space_invaders"


# --- booleans ---


@pytest.mark.parametrize("option", BOOLEANS)
def test_booleans(option: str) -> None:
    for value, texts in ((True, "1 True true TRUE yes Yes YES"), (False, "0 False false FALSE no No NO")):
        for text in texts.split():
            assert value_of(option, option, text, "--nb-actor", "2") is value
    for text in ("2", "-1", "10", "", "t", "y", "maybe", "None", "on", "off", "1.0", "01"):
        (error,) = [line for line in errors_of(f"{option}={text}", "--nb-actor", "2") if "expected" in line]
        assert error.startswith(f"{option}: ")


@pytest.mark.parametrize("option", sorted(FLAGS))
def test_a_flag_needs_no_value(option: str) -> None:
    assert value_of(option, option) is True
    assert value_of(option, option, "--seed", "4") is True


# --- combinations ---

ASYNCHRONOUS = ["--synchronize-actors-with-learner", "0"]


@pytest.mark.parametrize(
    ("argv", "refused"),
    [
        (["--nb-actor", "1"], False),
        (["--nb-actor", "1", *ASYNCHRONOUS], True),
        (["--nb-actor", "2", *ASYNCHRONOUS], False),
        (["--nb-actor", "4"], False),
        (["--nb-actor", "5"], True),
        (["--nb-actor", "5", *ASYNCHRONOUS], False),
    ],
)
def test_unwise_settings_need_force(argv: list[str], refused: bool) -> None:
    read(*argv, "--force")
    if refused:
        (error,) = errors_of(*argv)
        assert error.startswith("--synchronize-actors-with-learner: ")
        assert "--force" in error
    else:
        read(*argv)


def test_a_single_actor_alone_may_be_outrun_only_where_the_learner_waits_for_no_rows() -> None:
    # Mutation: refuse every agent's single actor.
    alone = ["--nb-actor", "1", *ASYNCHRONOUS]
    for agent in ("rainbow_iqn", "rainbow"):
        (error,) = errors_of("--agent", agent, *alone)
        assert "outrun by the learner" in error
    for agent in ("impala", "r2d2"):
        assert not read("--agent", agent, *alone).synchronize_actors_with_learner


@pytest.mark.parametrize("agent", AGENTS)
def test_many_synchronised_actors_are_told_what_they_can_do_instead(agent: str) -> None:
    # Mutation: propose to run REINFORCE without lockstep.
    chosen = ["--agent", agent, "--nb-actor", "5"]
    (error,) = errors_of(*chosen)
    if "or --synchronize-actors-with-learner False" in error:
        assert not read(*chosen, *ASYNCHRONOUS).synchronize_actors_with_learner
    else:
        assert AGENTS[agent].options.MAX_POLICY_LAG == 0


def test_evaluation_actors_have_numbers_of_their_own_and_no_part_in_the_run() -> None:
    # Mutation: mark their options as shared, and a run could not be resumed with another number of them.
    assert read("--id-eval-actor", "3").id_eval_actor == 3, "their number needs not be told to all"
    plain, with_them = read(), read("--id-eval-actor", "1", "--nb-eval-actors", "2")
    assert (with_them.shared, with_them.settings) == (plain.shared, plain.settings)
    filmed = read("--record-evaluations")
    assert filmed.record_evaluations and not plain.record_evaluations
    assert (filmed.shared, filmed.settings) == (plain.shared, plain.settings), "who films changes no run"


def test_force_forces_nothing_else() -> None:
    assert len(errors_of("--force", "--batch-size", "0", "--game", "pongg")) == 2


def test_the_agent_can_be_named_in_two_ways() -> None:
    assert read("--agent", "rainbow") == read("--rainbow-only", "1") == read("--agent=rainbow", "--rainbow-only=1")
    assert read("--agent", "rainbow_iqn") == read("--rainbow-only", "0") == read()


def test_an_agent_may_have_other_defaults_of_common_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line goes before the preset, that before the agent, and all before the common default."""

    @dataclass(frozen=True)
    class Patient(RainbowOptions):
        DEFAULTS: ClassVar[dict[str, Any]] = {"batch_size": 64, "learn_start": 500}

    monkeypatch.setitem(AGENTS, "rainbow", AGENTS["rainbow"]._replace(options=Patient))
    args = read("--agent", "rainbow")
    assert (args.batch_size, args.learn_start, read().batch_size) == (64, 500, 32)
    args = read("--agent", "rainbow", "--preset", "cpu", "--batch-size", "7")
    assert (args.batch_size, args.learn_start) == (7, PRESETS["cpu"]["learn_start"][0])


def test_options_of_other_agents_are_told_and_judged_but_not_used() -> None:
    args = read("--atoms", "21", "--kappa", "2")
    assert args.unused == {"atoms": 21} and args.get("atoms") is None and args.get("kappa") == 2
    assert args.replace(agent="rainbow").get("atoms") == 21


def test_common_options_that_an_agent_has_no_use_for_decide_nothing() -> None:
    # Mutation: let --learn-start put off the decay of a learning rate that falls from the first round on.
    words = ["--agent", "ppo", "--learn-start", "90000", "--memory-capacity", "70000"]
    args = read(*words)
    assert args == read("--agent", "ppo") and args.learn_start == 1
    assert args.not_used() == "Not used by --agent ppo: --learn-start, --memory-capacity"
    for agent in ("r2d2", "impala --reward-transform soft-asymmetric"):
        args = read("--agent", *agent.split(), "--reward-clip", "5")
        assert args.not_used() == f"Not used by --agent {args.agent}: --reward-clip"
    assert read(*"--agent r2d2 --rescaling False --reward-clip 5".split()).not_used() == ""
    assert errors_of(*words, "--batch-size", "0") == ["--batch-size: must be above 0, is 0"]


def test_a_game_beside_another_environment_is_told() -> None:
    def told(*words: str) -> str:
        return read("--game", "pong", *words).not_used()

    assert told("--env", "gymnasium:CartPole-v1", "--agent", "ppo") == "Not used by --env gymnasium:CartPole-v1: --game"
    assert told() == told("--env", "atari") == ""


def test_what_processes_must_share() -> None:
    shared = read("--seed", "4").shared
    assert shared["seed"] == 4
    assert {"game", "T_max", "multi_step", "discount", "rainbow_only", "weight_synchro_frequency"} <= shared.keys()
    assert not {"id_actor", "gpu_number", "host_redis", "path_to_results", "model", "disable_cuda"} & shared.keys()
    assert read("--id-actor", "0", "--disable-cuda").shared == read().shared


def test_folders_of_an_environment_may_differ_between_processes() -> None:
    # Mutation: every mark for all options of an environment.
    words = ["--env", "dmlab:explore_goal_locations_small"]
    plain, cached = read(*words), read(*words, "--dmlab-level-cache", "/a", "--dmlab-dataset", "/b")
    assert cached.get("dmlab_level_cache") == "/a" and "dmlab_renderer" in cached.shared.keys() & cached.settings.keys()
    for mark in ("shared", "policy", "evaluation"):
        assert cached.marked(mark) == plain.marked(mark)
    assert cached.settings == plain.settings


def test_what_the_command_gave_is_known() -> None:
    assert read().given == frozenset()
    assert read("--hidden-size", "512", "--render", "--preset", "cpu").given == {"hidden_size", "render", "preset"}
    assert read("--seed", "123") == read(), "and decides nothing by itself"


def test_options_of_an_evaluation() -> None:
    assert (read().evaluation_workers, read().record) == (0, None)
    assert read("--record", "films").record == Path("films").absolute()


def test_a_preset_stands_in_the_place_of_defaults_and_behind_the_command_line() -> None:
    plain, small = parse([], "x", ""), parse(["--preset", "cpu", "--batch-size", "16"], "x", "")
    names = {f.name for options in (plain, plain.own) for f in dataclasses.fields(options)}
    changed = {name for name in names if plain.get(name) != small.get(name)}
    assert changed == preset_of("cpu", RainbowIqnOptions, pictures=True).keys() | {"preset", "batch_size"}
    assert parse(["--agent", "rainbow", "--preset=cpu"], "x", "").get("lr_Rainbow") == 2.5e-4
    assert parse(["--hidden-size", "99", "--preset=cpu"], "x", "").get("hidden_size") == 99
    assert parse(["--preset", "paper"], "x", "") == plain


def test_a_preset_leaves_what_an_agent_takes_for_other_environments() -> None:
    # Mutation: let the preset for frames decide there, too.
    environment = ("--agent", "sac", "--env", "gymnasium:Pendulum-v1")
    plain, preset = read(*environment), read(*environment, "--preset", "cpu")
    for name in plain.own.VECTORS:
        assert preset.get(name) == plain.get(name)
    assert preset.get("architecture") != plain.get("architecture")
    assert read("--agent", "sac", "--preset", "cpu").memory_capacity < preset.memory_capacity


@pytest.mark.parametrize("preset", sorted(PRESETS.keys() - {"fast"}))
@pytest.mark.parametrize(
    ("env", "like"),
    [("gymnasium:ale_py:ALE/Pong-v5", "atari"), ("gymnasium:Acrobot-v1", "gymnasium:CartPole-v1"),
     ("gymnasium:Reacher-v2", "gymnasium:CartPole-v1")],
)  # fmt: skip
def test_what_is_observed_decides_on_defaults(env: str, like: str, preset: str) -> None:
    # Mutation: ask whether the environment is Atari's.
    for agent in ("ppo", "sac"):
        found, wanted = (read("--agent", agent, "--env", name, "--preset", preset) for name in (env, like))
        assert found.own == wanted.own
        assert [found.get(name) for name in found.own.VECTORS] == [wanted.get(name) for name in found.own.VECTORS]


def test_pictures_and_vectors_have_settings_of_their_own() -> None:
    pictures, vectors = (read("--agent", "ppo", "--env", env) for env in ("atari", "gymnasium:CartPole-v1"))
    assert (pictures.nb_env_per_actor, vectors.nb_env_per_actor) == (8, 1)


@pytest.mark.parametrize(
    ("preset", "agent"),
    [(preset, agent) for preset in PRESETS for agent in AGENTS if preset != "fast" or AGENTS[agent].options.FAST],
)
def test_a_preset_gives_a_reason_for_each_setting(preset: str, agent: str) -> None:
    args = parse(["--preset", preset, "--agent", agent, "--hidden-size", "99"], "x", "")
    told = preset_of(preset, type(args.own), pictures=True)
    lines = describe_preset(preset, told, args.get).splitlines()
    assert lines[0] == f"Preset {preset}:"
    for (name, (value, reason)), line in zip(told.items(), lines[1:], strict=True):
        if name == "hidden_size":
            assert line.split() == ["--hidden-size", "99", "given,", "in", "the", "place", "of", str(value)]
        else:
            assert line.split()[:2] == [flag_of(name), str(value)]
            assert line.endswith(reason)


def test_a_preset_is_announced_in_one_line_unless_all_is_asked_for() -> None:
    plain, verbose = parse(["--preset", "cpu"], "x", ""), parse(["--preset", "cpu", "--verbose"], "x", "")
    preset = preset_of("cpu", type(plain.own), pictures=True)
    assert (
        announce_preset("cpu", preset) == f"Preset cpu: {len(preset)} settings; --verbose prints each with its reason"
    )
    assert (plain.verbose, verbose.verbose) == (False, True)
    assert (plain.shared, plain.settings) == (verbose.shared, verbose.settings), "a process may be verbose alone"


def test_what_is_played_names_the_run() -> None:
    assert parse(["--game", "pong"], "x", "").task == "pong"
    assert parse(["--env", "gymnasium:CartPole-v1"], "x", "").name == "CartPole-v1"
    assert parse(["--env", "gymnasium:ale_py:ALE/Pong-v5"], "x", "").task == "ale_py-ALE-Pong-v5", "names a file"
    assert parse(["--env", "gymnasium:CartPole-v1", "--run-name", "mine"], "x", "").name == "mine"


def test_the_server_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("--redis-url", "rediss://there:7000/1").redis_url == "rediss://there:7000/1"
    for address in (["--host-redis", "localhost"], ["-p_red", "6379"]):  # also where it is the default
        (error,) = errors_of("--redis-url", "redis://there", *address)
        assert error.startswith("--host-redis, --port-redis: --redis-url names the Redis server, too")
        monkeypatch.setenv("REDIS_URL", "redis://:s3cret@there")
        (error,) = errors_of(*address)
        assert error.startswith("--host-redis, --port-redis: the environment variable REDIS_URL names")
        monkeypatch.delenv("REDIS_URL")
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@there")
    assert "s3cret" not in repr(read())
    assert read("--redis-url", "redis://there").redis_url == "redis://there"
