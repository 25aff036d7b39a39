"""Pictures of a run on terminals of several widths."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.monitoring.overview import Overview, Process
from rainbow_iqn_apex.monitoring.report import Report
from rainbow_iqn_apex.monitoring.terminal.pictures import process_picture, run_picture

VALUES = {
    "time/progress": 0.413, "train/timesteps": 413e3, "time/remaining": 750.0, "train/version": 4100.0,
    "train/updates_per_second": 9.2, "redis/unread": 3.0, "process/memory": 1.2e9, "rollout/ep_rew_mean": 12.4,
    "share/update": 0.6, "share/take_in": 0.3, "share/wait": 0.1,
}  # fmt: skip
PLAYED = {"actor/version": 4099.0, "actor/steps_per_second": 311.0, "actor/unread": 12.0, "process/memory": 4e8}
LEARNER = Report("learner", 0, "gpu-machine-17.example", 1234567, 0.0, 5.0, values=VALUES)
ACTORS = [Report("actor", i, "gpu-machine-17.example", 1234568 + i, 0.0, 5.0, values=PLAYED) for i in (0, 1)]
PROCESSES = (
    Process("learner", 0, "working", LEARNER), *(Process("actor", one.number, "working", one, 1.0) for one in ACTORS),
    Process("actor", 2, "missing"),
)  # fmt: skip
RUN = Overview("pong", RunStatus("id", "running", {"T_max": 1_000_000}, 0, 0), PROCESSES, (), "running")


def drawn(picture: object, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None)
    console.print(picture)
    return console.export_text().splitlines()


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (40, "process state rate lag"),
        (50, "process state rate lag unread seen"),
        (60, "process state rate version lag unread seen"),
        (80, "process state rate version lag unread memory seen pid"),
        (120, "process state rate version lag unread memory seen pid host"),
    ],
)
def test_columns_that_have_no_room_are_left_out_and_none_is_cut(width: int, columns: str) -> None:
    # Mutations: let the table shorten its cells; draw the time beside the facts on any terminal.
    lines = drawn(run_picture(RUN, 50), width)
    assert {len(line) for line in lines} == {width}
    text = "\n".join(line[2:-2].rstrip() for line in lines[1:-1])
    assert "…" not in text
    (header,) = re.findall("(?m)^process.*$", text)
    assert header.split() == columns.split()
    states = {"learner": "working", "actor 0": "working", "actor 1": "working", "actor 2": "missing"}
    for process, state in states.items():
        assert re.search(rf"(?m)^{process} +{state}\b", text)


def test_inference_servers_have_a_line_each_unless_they_are_many() -> None:
    values = {"inference/clients": 1.0, "inference/batch": 8.0, "inference/latency": 0.002, "inference/slowest": 0.01}
    report = Report("inference server", 0, "host", 7, 0.0, 5.0, values=values)
    servers = (Process("inference server", i, "working", replace(report, number=i), 1.0) for i in range(6))
    text = "\n".join(drawn(run_picture(replace(RUN, processes=(*PROCESSES, *servers)), 50), 120))
    told = ": 1 actor asks, batches of 8.0 environments, answers after 2.0 ms (99 %: 10.0 ms)"
    assert [f"inference server {i}{told}" in text for i in range(6)] == [True] * 4 + [False] * 2
    assert "and 2 more inference servers: --json has all" in text


@pytest.mark.parametrize("width", [40, 59, 60, 80, 120])
def test_every_fact_and_part_keeps_its_name(width: int) -> None:
    text = "\n".join(drawn(process_picture(LEARNER, "pong", {"T_max": 1_000_000}), width))
    for name in ("score", "learning", "weights", "waits for", "update", "take in", "wait", "41.3 %", "12 min left"):
        assert re.search(name.replace(" ", r"[\s│]+"), text), name
    assert ("score" in next(line for line in text.splitlines() if " time " in line)) == (width >= 60)


ATARI = {"game": "space_invaders", "env": "atari", "nb_actor": 2, "nb_env_per_actor": 8, "learn_start": 2000}


@pytest.mark.parametrize(
    ("values", "settings", "told"),
    [
        ({"rollout/ep_rew_before": 9.8}, ATARI, [r"score +12\.40 ↑ from 9\.80", r"known +random 148\.0, human 1,669"]),
        (
            {"rollout/ep_rew_before": 12.5},
            {"env": "gymnasium:Pong-v0", "game": "pong"},
            [r"score +12\.40 → from 12\.50"],
        ),
        ({"rollout/ep_rew_before": 13.0}, {"game": 7, "env": None}, [r"score +12\.40 ↓ from 13\.00"]),
        ({"rollout/ep_rew_mean": None}, ATARI, [r"no episode yet; .* between T = 3,200 and 72,000"]),
        ({"rollout/ep_rew_mean": None}, {"env": "gymnasium:x", "nb_actor": "2"}, ["with the first episode that ends"]),
        ({"train/timesteps": 0.0}, ATARI, [r"learning +begins at T = 2,000"]),
        ({"train/timesteps": 0.0}, {"learn_start": 1}, [r"learning +begins with the first round"]),
    ],
)
def test_a_screen_tells_the_trend_the_known_scores_and_what_to_expect(
    values: dict[str, float | None], settings: dict[str, object], told: list[str]
) -> None:
    # Mutations: tell the known scores of an environment that only shares a game's name; forget the environments.
    changed = {name: value for name, value in (VALUES | values).items() if value is not None}
    text = "\n".join(drawn(process_picture(replace(LEARNER, values=changed), "x", settings), 120))
    for words in told:
        assert re.search(words, text), text
    assert ("known" in text) == (settings.get("env") == "atari")


def test_a_first_score_is_expected_after_the_steps_of_all_actors() -> None:
    # Mutation: take the number of actors of the shared settings, which have none without lockstep.
    record = replace(RUN.record, settings={"T_max": 1_000_000, "env": "atari", "nb_env_per_actor": 2})
    begun = {name: value for name, value in VALUES.items() if "rew" not in name}
    processes = (replace(PROCESSES[0], report=replace(LEARNER, values=begun)), *PROCESSES[1:])
    text = " ".join(drawn(run_picture(replace(RUN, record=record, processes=processes), 40), 200))
    assert "the first score comes between T = 1,200 and 27,000" in text
