"""Views of actors: what travels, what is refused, and that nobody makes one that nobody listens to."""

import base64
import threading
from contextlib import closing

import numpy as np
import pytest

from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.reports import ReportStore, ViewListener
from rainbow_iqn_apex.memory.environment_spec import Part
from rainbow_iqn_apex.monitoring.report import MAX_BYTES as MOST_OF_A_REPORT
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter
from rainbow_iqn_apex.monitoring.view import MAX_BYTES, View, Viewer, decode, encode
from tests.deadline import wait_until

Numbers = tuple[float, ...]
FRAME = np.arange(84 * 84, dtype=np.uint8).reshape(84, 84)
VIEW = View(5.0, 7, 3, FRAME, "atoms", (1.0, -2.5), None, (-1.0, 0.0, 1.0), ((0.25, 0.5, 0.25), (1.0, 0.0, 0.0)))


def test_a_view_arrives_as_it_was() -> None:
    shown = decode(encode(VIEW))
    assert base64.b64decode(shown.pop("frame")["pixels"]) == FRAME.tobytes()
    assert shown == {
        "at": 5, "step": 7, "version": 3, "numbers": [], "kind": "atoms", "actions": [1, -2.5], "value": None,
        "places": [-1, 0, 1], "curves": [[0.25, 0.5, 0.25], [1, 0, 0]], "parts": [], "more_numbers": 0,
        "more_actions": 0,
    }  # fmt: skip
    colours = np.random.default_rng(1).integers(256, size=(3, 5, 4), dtype=np.uint8)
    planes = decode(encode(View(5.0, 7, 3, colours)))["frame"]
    assert base64.b64decode(planes["pixels"]) == colours.transpose(1, 2, 0).tobytes()
    planes = decode(encode(View(5.0, 7, 3, colours[:2])))["frame"]
    assert base64.b64decode(planes["pixels"]) == colours[:2].max(0).tobytes()
    numbers = decode(encode(View(5.0, 7, 3, np.array([0.5, np.nan, -3.0], np.float32))))
    assert (numbers["numbers"], numbers["frame"], numbers["kind"]) == ([0.5, 0, -3], None, "")


def test_names_of_numbers_arrive_with_them() -> None:
    # Mutation: send the parts of numbers that are left out.
    parts = (Part("arm" * 100, 0, 3), Part("goal", 3, 700), Part("unseen", 700, 705))
    shown = decode(encode(View(5.0, 7, 3, np.zeros(705, np.float32), parts=parts)))
    assert shown["parts"] == [(("arm" * 100)[:80], 3), ("goal", 509)]
    assert (len(shown["numbers"]), shown["more_numbers"]) == (512, 193)


def test_a_policy_of_many_actions_is_shown_in_part() -> None:
    # Mutation: cut a choice in two.
    intervals = decode(encode(many("intervals", (0.5,) * 600, FRACTIONS, ((0.1, 0.2, 0.5, 0.6, 0.7),) * 600)))
    assert len(intervals["actions"]) == len(intervals["curves"]) == 512 and intervals["more_actions"] == 88
    counts = (300.0, 200.0, 50.0, 2.0)
    choices = decode(encode(many("choices", (0.25,) * 552, counts, ())))
    assert (choices["places"], len(choices["actions"]), choices["more_actions"]) == ([300, 200], 500, 2)
    choices = decode(encode(many("choices", (0.5,) * 600, (2.0,) * 300, ())))
    assert (len(choices["places"]), len(choices["actions"]), choices["more_actions"]) == (256, 512, 44)
    assert decode(encode(many("choices", (0.0,) * 1002, (1000.0, 2.0), ())))["kind"] == ""


FRACTIONS = (0.05, 0.25, 0.5, 0.75, 0.95)


def many(kind: str, actions: Numbers, places: Numbers, curves: tuple[Numbers, ...]) -> View:
    return View(1.0, 1, 1, FRAME, kind, actions, 0.5, places, curves)


@pytest.mark.parametrize(
    "view",
    [
        View(1.0, 1, 1, np.zeros((4000, 4000), np.uint8)),
        View(1.0, 1, 1, np.zeros(10**6)),
        View(1.0, 1, 1, FRAME, "values", tuple(map(float, range(10_000)))),
        View(1.0, 1, 1, FRAME, "atoms", (1.0,) * 500, None, (1.0,) * 250, ((0.1234567,) * 250,) * 500),
        View(1.0, 1, 1, np.zeros((256, 256), np.uint8), "atoms", (-1.2345e-300,) * 32, None, (-1.2345e-300,) * 256,
             ((-1.2345e-300,) * 256,) * 32),
    ],
)  # fmt: skip
def test_views_are_bounded(view: View) -> None:
    # Mutation: no limit for the curves.
    data = encode(view)
    assert len(data) <= MAX_BYTES
    decode(data)


class Acting(threading.Thread):
    """Gives views as fast as it can; counts those that were made."""

    def __init__(self, viewer: Viewer) -> None:
        super().__init__()
        self.made = 0
        self._viewer = viewer
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.001):
            self._viewer.give(self._make)

    def _make(self) -> View:
        self.made += 1
        return VIEW


def test_a_view_that_cannot_be_made_is_the_last_and_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    # Mutation: let the error end the thread that acts.
    def fail() -> View:
        raise IndexError("no such\naction")

    viewer = Viewer()
    for _ in range(3):
        viewer.ask()
        viewer.give(fail)
        assert viewer.take() is None
    assert capfd.readouterr().out == (
        "Not to be watched in dashboard.py any more: no view can be made (IndexError: no such action)\n"
    )


def wait_for_reports(client: Client, keys: Keys, count: int) -> None:
    """Wait until actor 3 has written so many more reports."""
    seen: set[bytes] = set()
    with closing(ReportStore(client, keys)) as store:

        def are_enough() -> bool:
            seen.update(report.data for report in store.read([3], MOST_OF_A_REPORT).values())
            return len(seen) > count

        wait_until(are_enough, "reports")


@pytest.mark.slow
@pytest.mark.redis
def test_views_are_made_only_while_somebody_listens(client: Client, run_name: str) -> None:
    # Mutation: ask for the next view whether somebody listens or not.
    keys, viewer = Keys(run_name, "id"), Viewer()
    acting = Acting(viewer)
    acting.start()
    with Reporter(ReportStore(client, keys), "actor", 3, lambda: Reading({}), EventLog(), viewer=viewer):
        with closing(ReportStore(client, keys)) as store:
            wait_until(lambda: store.read([3], MOST_OF_A_REPORT), "the first report")
        assert acting.made == 0
        with closing(ViewListener(client)) as listener:
            listener.listen({keys.view(3)})
            found: dict[str, bytes] = {}

            def is_heard() -> bool:
                found.update(listener.next(MAX_BYTES))
                return bool(found)

            wait_until(is_heard, "a view")
            assert found == {keys.view(3): encode(VIEW)} and 0 < client.ttl(keys.view(3)) <= 5
        wait_until(lambda: client.pubsub_numsub(keys.view(3)) == [(keys.view(3).encode(), 0)], "the listener's end")
        wait_for_reports(client, keys, 2)  # a view that was asked for before is still made
        made = acting.made
        wait_for_reports(client, keys, 2)
        assert acting.made == made >= 1
    acting.stop.set()
    acting.join()


@pytest.mark.redis
def test_what_others_write_or_send_is_read_in_part(client: Client, run_name: str) -> None:
    # Mutations: GET in the place of GETRANGE; read a message to its end.
    large, other = f"riqx:{run_name}large", f"riqx:{run_name}other"
    client.set(large, b"x" * 10_000_000)
    with closing(ViewListener(client)) as listener:
        listener.listen({large, other})
        assert listener.next(1000) == {large: b"x" * 1000}
        client.publish(other, b"x" * 10_000_000)
        with pytest.raises(BrokerError, match="more than 1000 bytes"):
            wait_until(lambda: listener.next(1000) != {}, "the message")


def test_a_user_without_the_right_reports_all_the_same(own_client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    own_client.execute_command("ACL", "SETUSER", "default", "-pubsub")
    store = ReportStore(own_client, Keys("run", "id"))
    with Reporter(store, "actor", 3, lambda: Reading({}), EventLog(), viewer=Viewer()):
        wait_for_reports(own_client, Keys("run", "id"), 3)
    with closing(ReportStore(own_client, Keys("run", "id"))) as reader:
        assert reader.read([3], MOST_OF_A_REPORT), "written at its end"
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 1 and told[0].startswith("Not to be watched in dashboard.py: Redis takes no view (")
