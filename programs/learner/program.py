"""The learner's program: finds out what to resume, builds the parts and runs them."""

import json
import os
import textwrap
import threading
import uuid
from contextlib import ExitStack, closing
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch

from rainbow_iqn_apex.agents.devices import precision_in_use
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.registry import AGENTS, agent_names
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import checkout
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.files import ANYWHERE, folder_to_write, short_path
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.admin import unsafe_settings
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient, begun_as, renew
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.limiter import Crew, RateLimiter
from rainbow_iqn_apex.memory.rows import DTYPES
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import Reporter
from rainbow_iqn_apex.monitoring.sinks.history import HistorySink, path_of
from rainbow_iqn_apex.monitoring.sinks.sink import Feeder, FilmReader, InThread, RunInfo, Sink
from rainbow_iqn_apex.monitoring.sinks.videos import FilmFiles, read_shown
from rainbow_iqn_apex.monitoring.terminal.pictures import process_picture
from rainbow_iqn_apex.monitoring.terminal.screen import drawn
from rainbow_iqn_apex.monitoring.view_model import expectations
from rainbow_iqn_apex.options.agent_options import announce_preset, describe_preset, preset_of
from rainbow_iqn_apex.options.environment_names import check_actors
from rainbow_iqn_apex.options.sink_options import check_sinks, event_folder
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import device_name, make_agent, select_device
from rainbow_iqn_apex.programs.common import (
    connect_to_redis,
    launch_commands,
    look_at_entries,
    make_limiter,
    warn_of_long_rows,
)
from rainbow_iqn_apex.programs.evaluation.recording import EVALUATIONS, try_to_record
from rainbow_iqn_apex.programs.learner.budget import (
    capacity,
    check_learner,
    few_rows,
    make_buffer,
    replay_bytes,
    share_of,
)
from rainbow_iqn_apex.programs.learner.checkpointer import (
    SavedRun,
    damage_named,
    newest_whole,
    parse,
    points_to_keep,
)
from rainbow_iqn_apex.programs.learner.ingest import actor_messages
from rainbow_iqn_apex.programs.learner.learner import Learner
from rainbow_iqn_apex.programs.learner.own_inference import check_own_inference, own_inference
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder, describe_changes, write_settings
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress, Run
from rainbow_iqn_apex.programs.learner.world import RankWatch, RoundState, World, join, local_rank
from rainbow_iqn_apex.saber.results.run_record import present_start

_GPU_SHARE = 0.6  # of the free GPU memory that --replay-device auto gives to the replay


class Rank(NamedTuple):
    """What one rank of a run works with."""

    args: Args
    share: Args  # settings of this rank's part of buffer and batch
    world: World
    client: Client
    device: torch.device
    environment: EnvironmentSpec
    action_repeat: int
    stop: threading.Event


class Beginning(NamedTuple):
    """Where a run begins or resumes, as rank 0 has found out."""

    progress: Progress
    crews: tuple[Crew, ...]
    checkpoint: str  # its file in the results folder; empty: the run begins


class _Start(NamedTuple):
    """What a rank begins with."""

    saved: SavedRun | None
    agent: Agent
    beginning: Beginning


def run_learner(args: Args, stop: threading.Event) -> None:
    """Train the run of these settings until T-max or until this process shall stop."""
    if args.id_eval_actor >= 0:
        raise UserError("--id-eval-actor: expected in an evaluation actor alone; leave it out, this is the learner")
    if args.learner_threads:
        torch.set_num_threads(args.learner_threads)
    check_sinks(args)
    if args.record_evaluations:
        try_to_record(args, EVALUATIONS, folder_to_write("--path-to-results", args.path_to_results))
    client = connect_to_redis(args, stop)
    client.away.next_repair = 0.0
    device = select_device(args, local_rank(os.environ))
    world = join(os.environ, device)
    share = share_of(args, world.size)
    check_same_settings(world, args)
    check_actors(args.env, args.game, args.nb_actor)
    look = look_at_entries(replace(args, render=False))
    if world.rank == 0:
        for line in unsafe_settings(client):
            print(line, flush=True)
        check_own_inference(args)
        warn_of_long_rows(look.spec)
    _run(Rank(args, share, world, client, device, look.spec, look.action_repeat, stop))
    world.leave()


def check_same_settings(world: World, args: Args) -> None:
    """Raise UserError if the ranks of a run differ in what its results depend on; all ranks call this together."""
    paths = {"model": args.model and args.model.resolve(), "path_to_results": args.path_to_results.resolve()}
    own = args.settings | {"run_name": args.name} | paths
    texts = {name: json.dumps(value, default=str) for name, value in own.items()}
    (code, first), *others = world.exchange((checkout.present(), texts), tuple[checkout.Code, dict[str, str]])
    for rank, (there, _) in enumerate(others, 1):
        if there.differs_from(code):
            raise UserError(f"learner 0 has {code}, and learner {rank} {there}; bring all learners to the same")
    for rank, (_, other) in enumerate(others, 1):
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                here = f"{first.get(name)} at learner 0 and {other.get(name)} at learner {rank}"
                raise UserError(f"{flag_of(name)}: is {here}: start all learners with the same settings")


def _run(rank: Rank) -> None:
    """Train as one rank; rank 0 also holds the results folder."""
    args = rank.args
    # Take the lease and the folder before reading the checkpoint: a learner that leaves may still be writing it.
    with ExitStack() as held:
        learner_client = held.enter_context(_learner_client(rank))
        results = None
        if rank.world.rank == 0:
            results = held.enter_context(ResultsFolder(args.path_to_results, args.task, rank.action_repeat))
        made = _make_learner(rank, learner_client, results)
        if made is None:
            return
        learner, watch = made
        if learner.lead:
            settings = _settings_in_use(args, rank.device)
            feeder = held.enter_context(closing(make_feeder(args, rank.client, learner_client.keys.run_id, settings)))
            draw = held.enter_context(drawn(lambda report: process_picture(report, args.name, args.described)))
            lead = learner.lead
            events = learner.events
            held.enter_context(Reporter(lead.store, "learner", 0, lead.gauges.read, events, feeder.observe, draw))
            held.enter_context(own_inference(args))
        held.enter_context(watch)  # it ends first, as the other ranks leave while the inference server still ends
        learner.run()


def _make_learner(
    rank: Rank, learner_client: LearnerClient, results: ResultsFolder | None
) -> tuple[Learner, RankWatch] | None:
    """Return a learner that begins or resumes the run, and what watches the other ranks; None if the run has finished.

    The checkpoint, which may take gigabytes, is not held any more afterwards.
    """
    args = rank.args
    world = rank.world
    start = _start_leading(rank, learner_client, results) if results else None
    own = (learner_client.lease.token, start and start.beginning)
    opened = world.exchange(own, tuple[bytes, Beginning | None])
    if (beginning := opened[0][1]) is None:
        return None
    watch = RankWatch(rank.client, args.name, world.rank, [token for token, _ in opened])
    saved, agent, _ = start or _start_following(rank, beginning)
    limiter = make_limiter(args, agent.spec, beginning.crews)
    kept = len(points_to_keep(args, results.action_repeat)) if results else 0
    buffer = _make_buffer(rank, agent, limiter, kept)
    restore_agent(args, agent, saved)
    is_stopping = world.sync(RoundState(is_stopping=rank.stop.is_set())).is_stopping
    if is_stopping and not saved:  # a resumed run is led for a moment even so, for its actors to leave
        raise Stopped
    run = Run(args, learner_client, results, beginning.progress, limiter, rank.stop, world)
    _take_lead(run, rank.device, saved)
    schema = actor_messages(agent.spec, rank.environment, args.nb_env_per_actor)
    learner = Learner(run, agent, buffer, schema, rank.share.update_size)
    if saved:
        with damage_named(saved.path):
            learner.resume(saved)
    _describe(run, agent, f"{rank.device}, {agent.buffer} on {buffer.device}" if results else str(rank.device))
    return learner, watch


def _start_leading(rank: Rank, learner_client: LearnerClient, results: ResultsFolder) -> _Start | None:
    """Find out where the run begins or resumes; None if it has finished."""
    args = rank.args
    saved = _saved_run(args, results, rank.world)
    if saved and saved.finished and (T := saved.progress.T_learner) >= args.T_max:
        print(f"Finished at T = {T} already; move what is in {short_path(results.folder)} away to start afresh")
        return None
    progress = _find_run(learner_client, saved)
    agent = _make_agent(rank)
    check_of_others(args, agent)
    limiter = make_limiter(args, agent.spec, saved.crews if saved else ())
    if args.nb_actor != limiter.crews[-1].nb_actor:
        limiter = _change_crew(args, progress, limiter, learner_client)
    return _Start(saved, agent, Beginning(progress, limiter.crews, saved.path.name if saved else ""))


def _start_following(rank: Rank, beginning: Beginning) -> _Start:
    """Begin where rank 0 begins or resumes the run."""
    saved = None
    if beginning.checkpoint:
        folder = rank.args.path_to_results
        path = folder / beginning.checkpoint
        saved = parse(path, snapshot.load(path, "--path-to-results", folder))
    agent = _make_agent(rank)
    agent.generator.manual_seed(derive_seed(rank.args.seed, 0, rank.world.rank))
    return _Start(saved, agent, beginning)


def _make_agent(rank: Rank) -> Agent:
    seed = derive_seed(rank.args.seed, 0)
    return make_agent(rank.args, rank.environment, rank.device, learns=True, seed=seed, ranks=rank.world)


def _take_lead(run: Run, device: torch.device, saved: SavedRun | None) -> None:
    """Write on rank 0 that the run starts, and let the other ranks read from then on."""
    client = run.client
    if results := run.results:
        results.begin(present_start(_settings_in_use(run.args, device)), afresh=saved is None)
        if saved and (changes := describe_changes(results.settings_path, run.args)):
            print(changes, flush=True)
        write_settings(results.settings_path, run.args)
        # Last, as `lead` may abandon an older run: nothing may be refused from here on.
        saves = saved.origin.saves if saved else 0
        crews = run.limiter.crews
        client.lead(run.progress.run_id, crews, afresh=saved is None, saves=saves, played=results.log.played)
    run.world.exchange(run.progress.run_id, str)  # the others wait until rank 0 leads
    if not results:
        client.follow(run.progress.run_id)


def _describe(run: Run, agent: Agent, place: str) -> None:
    """Print what the preset sets, which options the agent does not use, and what is expected of the run."""
    args = run.args
    if not run.results:
        print(f"Learner {run.world.rank} of {run.world.size} of run {args.name!r} on {place}", flush=True)
        return
    if (name := args.preset) != "paper":
        preset = preset_of(name, type(args.own), pictures=args.sees_pictures, capacity=args.memory_capacity)
        print(describe_preset(name, preset, args.get) if args.verbose else announce_preset(name, preset), flush=True)
    if unused := args.not_used():
        print(unused, flush=True)
    if args.own.rate_falls and "T_max" not in args.given:
        print(
            f"The learning rate falls to 0 at --T-max, {args.T_max:,} agent steps: give those that you will train, as "
            "a run that is stopped long before has learned less",
            flush=True,
        )
    has_score = bool(run.results.log.episodes)
    expected = expectations(args.described, learns=run.progress.T_learner > 0, has_score=has_score)
    print(f"What to expect: {expected}", flush=True)
    if note := few_rows(args, agent):
        print(note, flush=True)
    print(f"Learner of run {args.name!r} on {place}", flush=True)


def _learner_client(rank: Rank) -> LearnerClient:
    args = rank.args
    return LearnerClient(
        rank.client,
        args.name,
        args.shared,
        args.nb_actor,
        folder=args.path_to_results,
        abandon_other=args.abandon_other_run,
        commands=launch_commands(args),
        shards=args.redis_shards,
        replicas=args.redis_replicas,
        rank=rank.world.rank,
        ranks=rank.world.size,
    )


def _settings_in_use(args: Args, device: torch.device) -> dict[str, Any]:
    """Return the settings, with the precision and the device that they come to on this machine."""
    in_use = {"precision": precision_in_use(args.precision, device), "device": device_name(device)}
    return args.settings | {"preset": args.preset} | in_use


def check_of_others(args: Args, agent: Agent) -> None:
    """Raise UserError for another package's agent whose weights cannot travel, or whose parts could not be read again.

    Its author shall learn that at the beginning, and not when the run is to go on.
    """
    if args.agent in AGENTS:
        return
    fault = snapshot.check_weights(agent.model.state_dict())
    for name, tensor in agent.model.published().items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in {*DTYPES, "bfloat16"}:
            fault = fault or f"{name} is of {dtype}, which cannot be sent to actors"
    if fault:
        raise UserError(f"--agent: the network's {fault}: keep it out of its state_dict, a buffer by persistent=False")
    snapshot.check_parts(agent)


def _make_buffer(rank: Rank, agent: Agent, limiter: RateLimiter, kept: int) -> Buffer:
    """Make the buffer of a rank's share; raises UserError where there is no room for what the learner needs.

    `kept` is the number of snapshots of weights alone that it leaves.
    """
    args = rank.args
    world = rank.world
    sized = replace(rank.share, memory_capacity=capacity(rank.share, agent, limiter))
    is_on_host = agent.buffer == "queue"  # only its batches go to the device
    needed = 0 if is_on_host else replay_bytes(sized, agent, rank.environment)
    where = _replay_device(args, needed, rank.device)
    held_on = torch.device("cpu") if is_on_host else where
    check_learner(sized, agent, rank.environment, held_on, rank.client, kept, world.size)
    path = (args.seed, 3, world.rank) if world.rank else (args.seed, 3)
    generator = torch.Generator(where).manual_seed(derive_seed(*path))
    return make_buffer(sized, agent, rank.environment, generator, world)


def _replay_device(args: Args, needed: int, device: torch.device) -> torch.device:
    if args.replay_device == "cuda" and device.type == "cpu":
        raise UserError("--replay-device: there is no CUDA device in use, only the CPU")
    if args.replay_device == "cpu" or device.type == "cpu":
        return torch.device("cpu")
    fits = needed < _GPU_SHARE * torch.cuda.mem_get_info(device)[0]
    return device if fits or args.replay_device == "cuda" else torch.device("cpu")


def make_feeder(args: Args, client: Client, run_id: str, settings: dict[str, Any]) -> Feeder:
    """Make what hands the learner's metrics to all sinks of a run."""
    run = RunInfo(args.name, begun_as(run_id), args.path_to_results, args.task, settings)
    sinks = _make_sinks(args, run)
    films = None
    if args.record_evaluations:
        films = FilmReader(FilmStore(client, run.name, run_id), read_shown(run.folder, run.game).of_run(run.run_id))
        sinks.append(InThread(FilmFiles(run)))
    return Feeder(sinks, OverviewReader(client.aside(), args.name), films)


def _make_sinks(args: Args, run: RunInfo) -> list[Sink]:
    """Make the sink that every run has, and those that the options name."""
    sinks: list[Sink] = [HistorySink(path_of(run.folder, run.game))]
    if args.tensorboard:
        from rainbow_iqn_apex.monitoring.sinks.tensorboard import TensorBoardSink

        sinks.append(TensorBoardSink(event_folder(run.folder, run.game, run.name)))
    if args.metrics_port:
        from rainbow_iqn_apex.monitoring.sinks.prometheus import PrometheusSink

        sinks.append(PrometheusSink(run.name, args.metrics_host, args.metrics_port))
    if args.wandb:
        from rainbow_iqn_apex.monitoring.sinks.wandb import WandbSink

        sinks.append(InThread(WandbSink(run)))
    if args.trackio:
        from rainbow_iqn_apex.monitoring.sinks.trackio import TrackioSink

        sinks.append(InThread(TrackioSink(run)))
    return sinks


def restore_agent(args: Args, agent: Agent, saved: SavedRun | None) -> None:
    """Let the agent go on from a checkpoint, or begin from --model where there is none."""
    if saved:
        try:
            with damage_named(saved.path):
                snapshot.restore(agent, saved.content)
        except UserError as error:
            raise UserError(
                f"--path-to-results: {short_path(saved.path)} cannot be resumed from, {error}; resume with the "
                "settings of its run, or start from its weights in another folder, with --model"
            ) from error
        note = "; --model is not used" if args.model else ""
        print(f"Resuming from {short_path(saved.path)} at T = {saved.progress.T_learner}{note}", flush=True)
    elif args.model:
        model = snapshot.choose(args.model, args.task)
        content = snapshot.load(model, "--model", args.model if args.model.is_dir() else ANYWHERE)
        try:
            snapshot.restore_weights(agent, content)
        except UserError as error:
            if (other := str(snapshot.settings_of(content).get("agent"))) in {*agent_names()} - {args.agent}:
                raise UserError(
                    f"--model: {short_path(model)} holds weights of --agent {other}, which do not fit --agent "
                    f"{args.agent}: train that agent, or name a snapshot of this one"
                ) from error
            if lines := _other_sizes(args, content):
                raise UserError("\n".join(lines)) from error
            raise
        print(f"Starting from the weights of {short_path(model)}", flush=True)


def _other_sizes(args: Args, content: dict[str, Any]) -> list[str]:
    """Return a line for each setting of the snapshot's run that explains why its weights do not fit.

    These are the settings on which the shapes of weights depend. If none of them differs, it is what was played, or any
    setting of another project's agent, whose author need not mark it.
    """
    saved = {
        name: value for name, value in snapshot.settings_of(content).items() if type(value) is type(args.get(name))
    }
    saved = {name: one_line(value, 100) if isinstance(value, str) else value for name, value in saved.items()}
    own = {f.name: f.metadata.get("shape", False) for f in fields(args.own)}
    shaping = ["history_length", *(name for name, decides in own.items() if decides)]
    others = ["env", "game", *(own if args.agent not in AGENTS else ())]
    found = (snapshot.differences(saved, {name: args.get(name) for name in names}) for names in (shaping, others))
    return next(filter(None, found), [])


def _saved_run(args: Args, reports: ResultsFolder, world: World) -> SavedRun | None:
    """Return the run to resume, None to start afresh; raises UserError for a run that cannot be resumed so."""
    if found := newest_whole(reports.folder, reports.game):
        saved = parse(*found)
        _refuse_other_settings(args, saved)
        _refuse_other_name(args, saved)
        _refuse_other_world(args, saved, world)
        return saved
    if full := next((log for log in reports.logs if log.episodes), None):
        raise UserError(
            f"--path-to-results: {short_path(full.path)} has episodes, but no checkpoint to resume: move it away"
        )
    return None


def _refuse_other_settings(args: Args, saved: SavedRun) -> None:
    """Raise UserError if settings differ from the checkpoint's; only T-max and the number of actors may.

    Other settings would not fit the run's experience and its actors' states.
    """
    before = saved.settings
    now = args.shared
    free = {"T_max", "nb_actor", "rainbow_only" if "agent" in before else ""} | args.own.UNUSED
    errors = [
        f"{flag_of(name)}: was {before[name]!r} when {short_path(saved.path)} was saved, is {now[name]!r}; resume with "
        f"{flag_of(name)} {before[name]!r}, or start afresh in another --path-to-results"
        for name in now.keys() & before.keys() - free
        if before[name] != now[name]
    ]
    if errors:
        raise UserError("\n".join(sorted(errors)))


def _refuse_other_name(args: Args, saved: SavedRun) -> None:
    """Raise UserError for another name, unless --abandon-other-run is given.

    The Redis server holds the run's experience under the run's name; under another name there is none.
    """
    if saved.name == args.name:
        return
    before = textwrap.shorten(ascii(saved.name), 200)
    if not args.abandon_other_run:
        raise UserError(
            f"--run-name: was {before} when {short_path(saved.path)} was saved, is {args.name!r}; resume under the "
            "same name, or give --abandon-other-run to go on without the experience that the Redis server holds under "
            "that name"
        )
    print(f"Going on as run {args.name!r}, without the experience that Redis holds of run {before}", flush=True)


def _refuse_other_world(args: Args, saved: SavedRun, world: World) -> None:
    """Raise UserError if other learners have written the checkpoint: each goes on with its own actors and replay."""
    before = len(saved.ranks)
    if before != world.size:
        raise UserError(
            f"--path-to-results: {short_path(saved.path)} is of a run with {before} learners, and here are "
            f"{world.size}: start as many, or start afresh in another --path-to-results"
        )
    nb_actor = saved.crews[-1].nb_actor
    if world.size > 1 and args.nb_actor != nb_actor:
        raise UserError(
            f"--nb-actor: was {nb_actor} when {short_path(saved.path)} was saved, is {args.nb_actor}; with "
            "several learners it cannot change"
        )


def _find_run(learner_client: LearnerClient, saved: SavedRun | None) -> Progress:
    """Return how far the run is; raises UserError as `check_name`.

    A run that goes on without the experience that a checkpoint counts gets another id: nothing that the server holds of
    an older state can reach it, and its actors begin anew.
    """
    if not saved:
        progress = Progress(uuid.uuid4().hex[:12])
        learner_client.check_name(progress.run_id, afresh=True)
        return progress
    if learner_client.check_name(saved.progress.run_id, origin=saved.origin):
        return saved.progress
    print(f"Going on without the experience that the run had with {saved.origin.server}", flush=True)
    return replace(saved.progress, run_id=renew(saved.progress.run_id))


def _change_crew(args: Args, progress: Progress, limiter: RateLimiter, learner_client: LearnerClient) -> RateLimiter:
    """Return the limiter of a resumed run that goes on with other actors.

    A killed learner has published more rounds than it has saved. Actors that stay play these rounds to their end. A
    leaving actor's part of the rounds that it has not finished is left out: of all rounds, if it never came.
    """
    before = limiter.crews[-1].nb_actor
    print(f"Going on with {args.nb_actor} actors, in the place of {before}", flush=True)
    published, playing = learner_client.rounds_under_way(progress.run_id, before)
    begun = [there.number for actor, there in playing.items() if actor < args.nb_actor and there.begun]
    leaving = [playing[actor].number if actor in playing else 0 for actor in range(args.nb_actor, before)]
    unfinished = [max(progress.round - 1, number) for number in leaving]
    last = max([progress.round, published, *begun])
    return limiter.change(min([last, *unfinished]), last, args.nb_actor)
