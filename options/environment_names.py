"""Names of environments: what is wrong with `--env` and `--game`."""

from rainbow_iqn_apex.common import plugins
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.registry import (
    ENVIRONMENTS,
    MOST_ENTRIES,
    entries,
    find_environment,
    outside,
    task_name,
)

_EXPECTED = "--env atari and --game, --env gymnasium:CartPole-v1, or --env package.module:make"


def option_of(environment: str) -> str:
    """Return the option that names, or lists, what a run plays."""
    return "--game" if environment == "atari" else "--env"


def check_actors(environment: str, game: str, nb_actor: int) -> None:
    """Raise UserError if a run of so many actors would never play some of what it lists."""
    if (listed := len(entries(environment, game))) > nb_actor:
        raise UserError(
            f"--nb-actor: expected at least {listed} actors, one for each that {option_of(environment)} lists, got "
            f"{nb_actor}"
        )


def environment_errors(environment: str, game: str) -> list[str]:
    """Return what is wrong with `--env` and `--game`, with each that they list."""
    played = entries(environment, game)
    option = option_of(environment)
    if len(played) > MOST_ENTRIES:
        return [f"{option}: expected at most {MOST_ENTRIES} in a list, got {len(played)}"]
    names = [task_name(*one) for one in played]
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        return [f"{option}: {twice} stands twice in the list, as the names of files spell it"]
    return list(dict.fromkeys(error for one in played for error in _errors(*one)))


def _errors(environment: str, game: str) -> list[str]:
    errors = []
    env, colon, name = environment.partition(":")
    if outside(environment):
        errors += _outside_errors(environment)
    elif env not in ENVIRONMENTS:
        errors.append(f"--env: expected {_EXPECTED.removeprefix('--env ')}, got {environment!r}")
    elif (example := ENVIRONMENTS[env].example) and not name:
        errors.append(f"--env: {env} needs a name, as in {env}:{example}")
    elif colon and not example:
        errors.append(f"--env: expected {env} alone, got {environment!r}; --game names the game")
    elif fault := ENVIRONMENTS[env].fault_of(name):
        errors.append(f"--env: {fault}")
    if env == "atari":
        from rainbow_iqn_apex.saber.games import check_game  # the emulator is needed to judge its games alone

        if error := check_game(game):
            errors.append(f"--game: {error}")
    return errors


def _outside_errors(environment: str) -> list[str]:
    try:
        found = find_environment(environment)
    except UserError as error:
        return [str(error)]
    if environment.count(":") > 1:
        return [f"--env: {environment}: a list names its module once: module:one,other"]
    where = plugins.searched(outside(environment))
    return [] if found else [f"--env: there is no environment {environment!r}{where}; {_meant(environment)}"]


def _meant(environment: str) -> str:
    """Return what to type in the place of a name that no environment has."""
    from gymnasium import registry  # takes a moment, which a right name shall not wait for

    from rainbow_iqn_apex.saber.games import games

    if (game := environment.lower().replace("-", "_")) in games():
        return f"{game} is a game: --game {game}"
    ids = {id_.partition("-v")[0].lower(): id_ for id_ in registry if "/" not in id_}  # of several versions the last
    name = environment if environment in registry else ids.get(environment.lower().partition("-v")[0])
    return f"did you mean --env gymnasium:{name}?" if name else _EXPECTED
