"""Tells when the learner of a process's run runs other code than the process: scores of a mixture belong to neither."""

from rainbow_iqn_apex.common.checkout import Code, present
from rainbow_iqn_apex.memory.broker.run_status import RunStatus
from rainbow_iqn_apex.monitoring.report import EventLog


class CodeWatch:
    """Looks at the record of a run, again and again: another learner may lead it meanwhile."""

    def __init__(self, events: EventLog) -> None:
        self._own = present()
        self._learners: Code | None = None
        self._events = events
        self._told = ""

    def look(self, record: RunStatus) -> None:
        """Print a line, and note an alarm, if the learner's code has come to differ from this process's."""
        if record.code is None or record.code == self._learners:
            return
        self._learners = record.code
        self._events.withdraw(self._told)
        if self._own.differs_from(record.code):
            self._told = text = f"other code than the learner: {self._own}, not {record.code}; bring both to the same"
            print(f"This process has {text}", flush=True)
            self._events.note(text, is_alarm=True)
