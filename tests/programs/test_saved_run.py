"""A checkpoint is read as the run that it holds."""

from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs.learner.saved_run import parse
from tests.refusals.files import CHECKPOINT, RUN, TABLE


def test_a_run_is_read() -> None:
    run = parse(CHECKPOINT, RUN)
    assert (run.progress.run_id, run.progress.round, run.progress.T_learner) == ("a1", 3, 700)
    assert (run.name, run.nb_actor, run.crews) == ("pong", 2, (Crew(0, 0, 2, 50),))
    assert (run.counted, run.published) == ({0: 17, 1: 0}, {2: bytes(5), 3: b"\1" * 6})
    assert run.replay.extra == {"slots": TABLE}
    assert (run.best_mean, run.logged, run.finished) == (-21.0, 80, False)
