"""Records that are refused: reports, views and films of processes, and the records of runs and evaluations."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.schema import parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run, record_fields
from rainbow_iqn_apex.memory.environment_spec import Part
from rainbow_iqn_apex.memory.limiter import check_crews
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.wire import Tag
from rainbow_iqn_apex.monitoring import report, video, view
from rainbow_iqn_apex.monitoring.metrics import PRIORITY_BOUNDS
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluationRecord, read_evaluation_record
from rainbow_iqn_apex.saber.results.run_record import read_record
from tests.memory.links import HERE, SETTINGS
from tests.monitoring.films import INFO
from tests.refusals.reader import Place, Reader, Refused, as_json, changed, field, of

OTHER_FIELDS = "other fields than this release writes"


def _no_record(most: int = 0) -> Refused:
    """Return bytes that are no record at all; of those from Redis, at most so many are read."""
    too_many: Refused = {rf"\({most + 1} bytes, {most} are allowed": [b" " * (most + 1)]}
    return {
        r"\(no JSON\)\)?$": [b"", b"\xff", b"{", b"[" * 50_000, b'{"a": 1e999}', b'{"a": NaN}'],
        f"{OTHER_FIELDS}\\)": [b"{}", b"[]", b"null", b"7"],
        **(too_many if most else {}),
    }


# --- reports ---

BINS = [float(count) for count in range(len(PRIORITY_BOUNDS) + 1)]
REPORT = asdict(report.Report("actor", 3, "host", 77, 1e9, 1e9 + 5, histograms={"buffer/priorities": BINS}))
REPORTS = changed(REPORT, {
    OTHER_FIELDS: [{"more": 1}],
    r"\(no JSON\)": [{"written": math.nan}, {"written": math.inf}, {"values": {"actor/steps": math.nan}}],
    r"out of range - at `\$.written": [{"written": 10**400}],
    "a histogram of other bins": [{"histograms": {"buffer/priorities": [1.0]}}],
    **dict([
        field("role", "king", None, ["actor"]), field("number", -1, 10**9, True, 1.0, "1"),
        field("host", 7, "h" * 301, None), field("process", -1, 1e3, None),
        field("began", -1, 1e300, "now", None, True), field("waits_for", None, "w" * 301),
        field("values", None, [], {"actor/steps": "1"}, {"actor/steps": None}, {"actor/steps": 1e301}),
        field("histograms", None, {"buffer/priorities": [-1.0, *BINS[1:]]}),
        field("events", None, {}, [[1]], [["now", "text", False]], [[1, "t" * 301, False]], [[1, "t", False]] * 21),
    ]),
})  # fmt: skip

# --- views ---

FRAME = np.arange(84 * 84, dtype=np.uint8).reshape(84, 84)


def _view(seen: Array, *more: Any, **parts: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(view.encode(view.View(5.0, 7, 3, seen, *more, **parts)))
    return content


VIEW = _view(FRAME, "atoms", (1.0, -2.5), None, (-1.0, 0.0, 1.0), ((0.25, 0.5, 0.25), (1.0, 0.0, 0.0)))
ARM = _view(np.zeros(3, np.float32), parts=(Part("arm", 0, 2), Part("goal", 2, 3)))
CHOICES = _view(FRAME, "choices", (0.25, 0.75, 1.0), 0.5, (2.0, 1.0))


def _small(height: int, width: int, pixels: object) -> dict[str, Any]:
    return {"frame": {"height": height, "width": width, "pixels": pixels}}


VIEWS: Refused = {
    **changed(VIEW, {
        OTHER_FIELDS: [{"more": 1}],
        r"\(no JSON\)": [{"step": math.nan}],
        r"at `\$\.frame.height`": [_small(10**9, 1, "")],
        r"at `\$\.frame.pixels`": [_small(1, 3, 7)],
        "a frame of another size": [_small(2, 2, "AAAA")],
        "Only base64 data": [_small(1, 3, "A!==")],
        **dict([
            field("kind", "<b>", []), field("actions", ["1", 2], [True, 2]), field("at", 1e200), field("value", "x"),
            field("numbers", [1.0] * 1000, None), field("more_numbers", "1"), field("more_actions", None),
            field("frame", []),
        ]),
    }),
    **changed(ARM, dict([field("parts", {}, ["arm"], [["arm"]], [[1, 3]], [["arm", "3"]], [["x" * 81, 3]])])),
    **changed(CHOICES, dict([field("places", ["3"])])),
}  # fmt: skip

# --- films ---

FILM = asdict(INFO)
CHANGES = np.zeros((6, 5, 7, 3), np.uint8)
NO_FILMS = changed(FILM, dict([
    field("score", math.nan, math.inf, "1", None), field("at", -1.0, 1e300, math.nan, "now"),
    field("rate", 0.0, -1.0, 1e9, math.nan), field("step", -1, 2**60, 1.5, None), field("version", -1, 2**60),
    field("actor", -1, 10**6, True), field("episode", -1, 2**60), field("stride", 0, -1, 2**60),
    field("pictures", 0, video.MAX_PICTURES + 1, -1), field("height", 0, video.MAX_HEIGHT + 1),
    field("width", 0, video.MAX_WIDTH + 1, 1.0),
]))  # fmt: skip


assert [f"- at .*\\$\\.{name}\\b" for name in FILM] == list(NO_FILMS), "each field"


def film_of(changes: Array = CHANGES, tag: Tag = Tag.FILM, name: str = "changes", **claims: int) -> bytes:
    """Return a film whose description claims other pictures than it has."""
    return wire.encode(tag, FILM | claims, {name: changes})


FILMS: Refused = {
    "shorter than its frame": [b"", b"RIQX"],
    "not a message of this project": [b"\xff" * video.HEADER_BYTES, bytes(1000)],
    f"a film of more than {video.FILM_BYTES} bytes": [film_of() + bytes(video.FILM_BYTES)],
    "other pictures than its header claims": [
        film_of(CHANGES[:-1]), film_of(CHANGES.reshape(5, 6, 7, 3)), film_of(CHANGES[..., :1].astype(np.uint16)),
        film_of(pictures=7), film_of(tag=Tag.STATE), film_of(name="pictures"), film_of(width=8),
    ],
    field("pictures")[0]: [film_of(pictures=65535, height=65535, width=65535)],
    OTHER_FIELDS: [film_of(more=1)],
    "checksum differs": [film_of()[:-1], film_of() + b"x"],
}  # fmt: skip

# --- runs ---

STATUS: dict[str, Any] = record_fields(
    RunStatus("id", "running", SETTINGS, 3, 4, owner=HERE, written=1_500_000_000), {}
)


def _read_status(value: dict[str, Any], place: Place) -> None:
    """Read a run's record from Redis; None: without the field."""
    fields: dict[Any, Any] = {name: content for name, content in value.items() if content is not None}
    place.client.hset(Keys(place.run_name, "").run, mapping=fields)
    assert read_run(place.client, place.run_name)


STATUSES: Refused = changed(STATUS, {
    "its run id is no name": [{"run_id": b""}, {"run_id": b"*"}, {"run_id": b"i" * 65}],
    "its status is unknown": [{"status": None}, {"status": b"\xff"}],
    "its settings are no plain values": [
        {"settings": text}
        for text in (
            None, b"{", b"[1]", b"[" * 100_000, b'{"a": {}}', b'{"T_max": 1' + b"0" * 400 + b"}", b'{"T_max": NaN}',
            b'{"T_max": -Infinity}', b'{"T_max": 1e400}', b'{"T_max": [1]}',
        )
    ],
    "a count is no whole number": [
        {"t_learner": None}, {"t_actors": b"1e9"}, {"t_actors": b"9" * 5000}, {"wire": b"x"}, {"wire": None},
        {"saves": None}, {"written": b"-1"},
    ],
    "no JSON": [{"crews": None}],
    "its crews are wrong": [{"crews": b"[[0, 0]]"}],
    "its folder is no absolute path": [{"folder": None}, {"folder": b"relative"}, {"folder": b"/" * 5000}],
    "its host is no name": [{"host": host} for host in (None, b"a host", b"\x1b[31m", b"h" * 300)],
    "the time at which it was written is too large": [{"written": b"9" * 19}],
    "its server is none": [{"server": server} for server in (b"", b"x", b"a" * 65)],
    "its code is none": [
        {"code": code}
        for code in (
            b"", b"[]", b'{"release": "1"}', b'{"release": "1", "commit": ""}', b'{"release": "1\\n", "commit": "a"}',
            b'{"release": "1", "commit": "%s"}' % (b"a" * 101), b" " * 2000,
        )
    ],
})  # fmt: skip
STATUSES = {
    f"the record of run .* in Redis, .*, is damaged: {says}.*; delete it with": x for says, x in STATUSES.items()
}
CREWS: Refused = {
    "its crews are wrong": [
        None, {}, [3], [[0, 0, 1]], [[0, 0, 1, 2.0]], [[0, 0, True, 2]], [[0, -1, 1, 2]], [[0, 0, 0, 2]],
        [[0, 0, 1, 0]], [[0, 0, 4097, 2]], [[0, 0, 1, 2**53]], [[0, 2**53, 1, 1]],
    ],
    "its crews are not in the order": [[[1, 0, 1, 2]], [[0, 0, 1, 2], [0, 0, 1, 2]]],
}  # fmt: skip

START = {"settings": {}, "versions": {}, "commit": ""}
RUN = {"game": "pong", "action_repeat": 4, "reached": 1, "starts": [START]}
RUNS = changed(RUN, {
    OTHER_FIELDS: [{"more": 1}],
    r"\(no JSON\)": [{"reached": math.nan}, {"starts": math.inf}],
    **dict([
        field("game", None), field("action_repeat", 0, True, 2**63), field("reached", -1, 1.0, None),
        field("starts", [], [{"settings": 1}], [START | {"more": 1}], [START | {"versions": {"torch": 2}}]),
    ]),
})  # fmt: skip
EVALUATION = asdict(EvaluationRecord("r\udce9sultats/a\n.pth", "0123", 7, {"game": "pong"}, "cpu", {}, ["abc"], 50))
EVALUATIONS = changed(EVALUATION, {
    OTHER_FIELDS: [{"more": 1}],
    r"\(no JSON\)": [{"seed": math.nan}, {"settings": {"proba_sticky_actions": math.inf}}],
    "model is no path": [{"model": "a\0.pth"}],
    "can't encode": [{"model": "\ud800"}],
    **dict([
        field("model", 1), field("weights", None), field("seed", True), field("device", []), field("versions", []),
        field("commits", "abc"), field("episodes", True, -1, 0), field("trained_steps", -4, 10**400),
    ]),
})  # fmt: skip


def _said(file: str, refused: Refused) -> Refused:
    return {f"{file}.*{says}": values for says, values in refused.items()}


RECORDS = [
    Reader(
        "report", of(report.decode), json.dumps(REPORT).encode(), report.ReportError,
        as_json(REPORTS) | _no_record(report.MAX_BYTES),
    ),
    Reader(
        "view", of(view.decode), json.dumps(VIEW).encode(), view.ViewError, as_json(VIEWS) | _no_record(view.MAX_BYTES)
    ),
    Reader("film", of(video.decode_film), film_of(), video.FilmError, FILMS),
    Reader(
        "film's description", of(lambda value: parse_record(value, video.FilmInfo)), FILM, ValueError,
        NO_FILMS | {OTHER_FIELDS: [None, [], {}, 1, FILM | {"more": 1}]},
    ),
    Reader("run status", _read_status, STATUS, RunError, STATUSES),
    Reader("crews", of(check_crews), [[0, 0, 1, 2], [3, 6, 4096, 2]], ValueError, CREWS),
    Reader(
        "run record", lambda data, place: read_record(place.file("pong.json", data)), json.dumps(RUN).encode(),
        ValueError, _said("pong.json: not a run's record", as_json(RUNS) | _no_record()),
    ),
    Reader(
        "evaluation record", lambda data, place: read_evaluation_record(place.file("x.json", data)),
        json.dumps(EVALUATION).encode(), ValueError,
        _said("x.json: not an evaluation's record", as_json(EVALUATIONS) | _no_record()),
    ),
]  # fmt: skip
