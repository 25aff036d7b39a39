"""Check common options that need more than bounds: each function returns a line for each fault, naming the option."""

from rainbow_iqn_apex.memory.broker import access
from rainbow_iqn_apex.saber.registry import ENVIRONMENTS


def environment_errors(environment: str, game: str) -> list[str]:
    """Return what is wrong with `--env` and `--game`."""
    errors = []
    env, colon, name = environment.partition(":")
    if env not in ENVIRONMENTS:
        errors.append(f"--env: there is no environment {environment!r}; known are {', '.join(sorted(ENVIRONMENTS))}")
    elif env == "gymnasium" and not name:
        errors.append("--env: gymnasium needs an id, as in gymnasium:CartPole-v1")
    elif env != "gymnasium" and colon:
        errors.append(f"--env: expected {env} alone, got {environment!r}; --game names the game")
    if env == "atari":
        from rainbow_iqn_apex.saber.games import check_game  # the emulator is needed to judge its games alone

        if error := check_game(game):
            errors.append(f"--game: {error}")
    return errors


def server_errors(host: str, url: str) -> list[str]:
    """Return what is wrong with `--host-redis` and `--redis-url`."""
    errors = access.check_url(url) if url else []
    if "://" in host or "@" in host:
        errors.append(f"--host-redis: expected the name or address of a machine; {access.URL_OPTION} takes a URL")
    return errors
