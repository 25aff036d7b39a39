"""Checks which environment `--env` and `--game` name."""

from rainbow_iqn_apex.environments.registry import ENVIRONMENTS


def environment_errors(environment: str, game: str) -> list[str]:
    """Return what is wrong with `--env` and `--game`."""
    errors = []
    env, colon, name = environment.partition(":")
    if env not in ENVIRONMENTS:
        errors.append(f"--env: there is no environment {environment!r}; {_meant(environment)}")
    elif env == "gymnasium" and not name:
        errors.append("--env: gymnasium needs an id, as in gymnasium:CartPole-v1")
    elif env != "gymnasium" and colon:
        errors.append(f"--env: expected {env} alone, got {environment!r}; --game names the game")
    if env == "atari":
        from rainbow_iqn_apex.saber.games import check_game  # the emulator is needed to judge its games alone

        if error := check_game(game):
            errors.append(f"--game: {error}")
    return errors


def _meant(environment: str) -> str:
    """Return what to type in the place of a name that no environment has."""
    from gymnasium import registry  # takes a moment, which a right name shall not wait for

    from rainbow_iqn_apex.saber.games import games

    if (game := environment.lower().replace("-", "_")) in games():
        return f"{game} is a game: --game {game}"
    ids = {id_.partition("-v")[0].lower(): id_ for id_ in registry if "/" not in id_}  # of several versions the last
    name = environment if environment in registry else ids.get(environment.lower().partition("-v")[0])
    return f"did you mean --env gymnasium:{name}?" if name else "--env atari and --game, or --env gymnasium:CartPole-v1"
