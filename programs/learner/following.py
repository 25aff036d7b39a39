"""How several learners begin a run: with the same settings, from the same checkpoint, each with its own actors."""

import json
import threading
from typing import NamedTuple

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import checkout
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import make_limiter
from rainbow_iqn_apex.programs.learner.decoder import MessageDecoder
from rainbow_iqn_apex.programs.learner.follower import Follower
from rainbow_iqn_apex.programs.learner.parts import Place, make_checked_buffer, make_learner_client, restore_agent
from rainbow_iqn_apex.programs.learner.progress import Progress
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun, damage_named, parse
from rainbow_iqn_apex.programs.learner.team import Team
from rainbow_iqn_apex.programs.learner.team_watch import TeamWatch


class Beginning(NamedTuple):
    """Where a run goes on, as the learner that leads has found out."""

    progress: Progress
    crews: tuple[Crew, ...]
    checkpoint: str  # its file in the results folder; empty: the run begins


def check_same_settings(team: Team, args: Args) -> None:
    """Raise UserError if learners of one run differ in what its results depend on; all learners call this together."""
    code = team.exchange(checkout.present(), checkout.Code)
    for rank, there in enumerate(code):
        if there.differs_from(code[0]):
            raise UserError(f"learner 0 has {code[0]}, and learner {rank} {there}; bring all learners to the same")
    paths = {"model": args.model and args.model.resolve(), "path_to_results": args.path_to_results.resolve()}
    own = args.settings | {"run_name": args.name} | paths
    texts = {name: json.dumps(value, default=str) for name, value in own.items()}
    first, *others = team.exchange(texts, dict[str, str])
    for rank, other in enumerate(others, 1):
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                here = f"{first.get(name)} at learner 0 and {other.get(name)} at learner {rank}"
                raise UserError(f"{flag_of(name)}: is {here}: start all learners with the same settings")


def begin_together(team: Team, beginning: Beginning | None) -> Beginning | None:
    """Return where the run goes on, as learner 0 gives it; None if the run has finished already."""
    return team.exchange(beginning, Beginning | None)[0]  # type: ignore[arg-type]


def watch_others(args: Args, client: Client, team: Team, learner_client: LearnerClient) -> TeamWatch:
    """Return what ends this process when another learner is gone; all learners call this together."""
    return TeamWatch(client, args.name, team, team.exchange(learner_client.lease.token, bytes))


def run_follower(args: Args, share: Args, team: Team, place: Place, stop: threading.Event) -> None:
    """Train the run that learner 0 leads, with this learner's `share` of buffer and batch."""
    client, device, environment = place
    with make_learner_client(args, client, team) as learner_client:
        if (beginning := begin_together(team, None)) is None:
            return
        watch = watch_others(args, client, team, learner_client)
        saved = _load(args, beginning.checkpoint)
        agent = make_agent(args, environment, device, learns=True, seed=derive_seed(args.seed, 0), ranks=team)
        agent.generator.manual_seed(derive_seed(args.seed, 0, team.rank))
        limiter = make_limiter(args, agent.spec, beginning.crews)
        buffer = make_checked_buffer(args, share, team, place, agent, limiter)
        restore_agent(args, agent, saved)
        if team.total(int(stop.is_set()))[0] and not saved:
            raise Stopped
        recorded = team.exchange((0, 0), tuple[int, int])[0]  # when learner 0 leads the run
        learner_client.follow(beginning.progress.run_id, *recorded)
        decode = MessageDecoder(agent.spec, environment, args.nb_env_per_actor)
        run = Run(args, learner_client, None, beginning.progress, limiter, stop, team)
        follower = Follower(run, agent, buffer, decode, share.update_size)
        if saved:
            with damage_named(saved.path):
                follower.resume(saved)
        del saved
        print(f"Learner {team.rank} of {team.size} of run {args.name!r} on {device}", flush=True)
        with watch:
            follower.run()


def _load(args: Args, name: str) -> SavedRun | None:
    """Return the checkpoint from which learner 0 goes on."""
    if not name:
        return None
    path = args.path_to_results / name
    return parse(path, snapshot.load(path, "--path-to-results", args.path_to_results))
