"""Google Research Football (Kurach et al. 2020, arXiv 1907.11180): --env football:<scenario>.

We are the left team and move its active player. The observation is the Super Mini Map: four planes of points, of our
team, the others, the ball and the active player. The score is the difference of goals. A match that ends because its
time is up ends as "time_limit".
"""

from importlib.util import find_spec

from rainbow_iqn_apex.common.text import nearest
from rainbow_iqn_apex.environments.display import check_display
from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.football.options import SCENARIOS, FootballOptions
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings

_BUILD = "build it with: bash make_environment.sh --football"


def make_football(settings: EnvironmentSettings, seed: int) -> Environment:
    """Make a scenario's environment, with the engine that the options ask for; raises ValueError if that cannot be."""
    options = settings.own
    assert isinstance(options, FootballOptions)
    scenario = settings.env.partition(":")[2]
    check_name(scenario)
    _check_installed(options.football_engine)
    if settings.render:
        check_display()
        raise RuntimeError("football opens no window; --record and --record-evaluations film the pitch from above")
    if options.football_engine == "envpool":
        from rainbow_iqn_apex.environments.football.envpool_engine import EnvpoolFootball

        return EnvpoolFootball(scenario, settings, seed)
    from rainbow_iqn_apex.environments.football.gfootball_engine import GfootballFootball

    return GfootballFootball(scenario, settings, seed)


def check_name(scenario: str) -> None:
    """Raise ValueError for a name that no scenario has."""
    if scenario not in SCENARIOS:
        close = nearest(scenario, SCENARIOS, cutoff=0.4) or SCENARIOS[:3]
        raise ValueError(f"football has no scenario {scenario!r}; did you mean {' or '.join(close)}?")


def _check_installed(engine: str) -> None:
    """Raise ValueError if the engine is not there."""
    if engine == "envpool" and (lacking := missing("football")):
        raise ValueError(f"football cannot be made: {lacking}; or give --football-engine gfootball, and {_BUILD}")
    if engine == "gfootball" and not find_spec("gfootball_engine"):
        raise ValueError(f"football cannot be made: gfootball is missing; {_BUILD}")
