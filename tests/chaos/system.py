"""A learner, its actors and Redis, with a proxy before each process, and everything that may happen to them."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.programs import snapshot
from tests.chain.changes import TTL_S
from tests.chaos import notes
from tests.chaos.faults import LEARNER, REDIS, Fault
from tests.chaos.proxy import Proxy
from tests.chaos.tap import Tap
from tests.conftest import RedisServer
from tests.deadline import Deadline, wait_until
from tests.processes import Process
from tests.system import Run

PATIENCE_S = 60.0  # for the system to go on after whatever has happened to it


class Chaos(Run):
    """A run that is disturbed; use `chaos` to make one."""

    _keeps_output = True

    def __init__(
        self, stack: ExitStack, folder: Path, options: list[str], actors: int, mutations: dict[str, str]
    ) -> None:
        super().__init__(0, "chaos", folder, [*options, "--nb-actor", str(actors)])
        (folder / "redis").mkdir(parents=True)
        self.server = RedisServer(folder / "redis", append_only=True)
        self.server.start()
        stack.callback(self.server.stop, signal.SIGKILL)
        self.who = [LEARNER, *map(str, range(actors))]
        self.name = "chaos"
        self.tap = stack.enter_context(Tap(redis.Redis(port=self.server.port, socket_timeout=5), self.name, actors))
        # One connection, for which threads wait: `check_nobody_is_left` counts them.
        pool = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
            1, timeout=None, port=self.server.port, socket_timeout=5
        )
        self.client = redis.Redis.from_pool(pool)
        stack.callback(self.client.close)
        self._proxies = {who: stack.enter_context(Proxy(self.server.port)) for who in self.who}
        self._launch = ("tests.chaos.launch", str(folder))
        self._mutations = mutations
        self._lock = threading.Lock()
        stack.enter_context(self)
        self._may_leave: set[str] = set()  # who has been asked to, by a signal or by the learner's goodbye
        for who in self.who:
            self.start(who)

    # --- processes ---

    def beside(self, who: str, *more: str, change: str = "") -> Process:
        """Start a program, which finds Redis behind its proxy, and takes no other's place."""
        port = str(self._proxies[who].port)
        with self._lock:  # forking is not for several threads at a time
            return super().beside(
                who, "--port-redis", port, *more, change=change or self._mutations.get(who, "nothing")
            )

    def output(self, who: str) -> Path:
        return self.folder / f"{who}.txt"

    def weights(self) -> set[str]:
        """The hash that a learner has said at its end; once, or again by one that was killed before it could leave."""
        return set(re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", self.output(LEARNER).read_text()))

    def set_latency(self, seconds: float) -> None:
        """Of each message between anybody and Redis."""
        for proxy in self._proxies.values():
            proxy.latency = seconds

    def wait(self, process: Process, codes: set[int], what: str, patience: float = PATIENCE_S) -> None:
        """Until a process has ended, with one of these exit codes."""
        wait_until(lambda: process.exit_code is not None, lambda: f"{what}: its end\n{self.last_words()}", patience)
        assert process.exit_code in codes, f"{what}: exit code {process.exit_code}, not {codes}\n{self.last_words()}"

    def revive(self) -> None:
        """Start those again who have left with a learner that said goodbye, or came while Redis was away."""
        for who, process in self.processes.items():
            if process.exit_code is not None and not self.finished():
                sent_home = process.exit_code == 0 and who in self._may_leave
                came_in_vain = process.exit_code == 2 and "no Redis server answers" in self._last_line(who)
                assert sent_home or came_in_vain, f"{who}: exit code {process.exit_code}\n{self.last_words()}"
                self._may_leave.discard(who)
                self.start(who)

    def _last_line(self, who: str) -> str:
        return self.output(who).read_text().splitlines()[-1]

    def finished(self) -> bool:
        record = self.record()
        return record is not None and record[b"status"] == b"finished"

    def record(self) -> dict[bytes, bytes] | None:
        found: Any = self._ask(lambda: self.client.hgetall(Keys(self.name, "").run))
        return found or None

    def _ask(self, question: Any) -> Any:
        """Ask Redis, which may be about to come back."""
        deadline = Deadline(20, "Redis to come back")
        while True:
            try:
                return question()
            except (redis.ConnectionError, redis.TimeoutError):
                deadline.check()
                time.sleep(0.05)

    # --- progress ---

    def marks(self) -> dict[str, int]:
        """How far everybody is: the newest weights, and each actor's last message."""
        record = self.record()
        if not record:
            return dict.fromkeys(self.who, 0) | {LEARNER: -1}
        keys = Keys(self.name, record[b"run_id"].decode())
        newest: Any = self._ask(lambda: self.client.xrevrange(keys.versions, count=1))
        marks = {LEARNER: int(newest[0][0].split(b"-")[0]) if newest else -1}
        for who in self.who[1:]:
            marks[who] = int(self._ask(lambda who=who: self.client.hget(keys.state(int(who)), "sequence")) or 0)
        return marks

    def wait_for_progress(self) -> None:
        """Until everybody has got on, or the run has ended."""
        before = self.marks()
        waiting = set(self.who)
        deadline = Deadline(PATIENCE_S, lambda: f"{waiting} to get on\n{self.last_words()}")
        while waiting and not self.finished():
            deadline.check()
            time.sleep(0.02)
            self.revive()
            now = self.marks()
            waiting = {who for who in waiting if now[who] == before[who]}

    def wait_for_messages(self, who: str, more: int) -> None:
        """Until an actor has sent so many more."""
        start = self.marks()[who]
        deadline = Deadline(PATIENCE_S, lambda: f"messages of actor {who}\n{self.last_words()}")
        while self.marks()[who] < start + more:
            deadline.check()
            self.revive()
            time.sleep(0.02)

    def wait_for_checkpoints(self) -> None:
        """Until both checkpoints have learned something: then a resumed learner reads again what it has counted."""

        def have_learned() -> bool:
            paths = snapshot.last_models(self.folder, "CartPole-v1")
            return len(paths) == 2 and paths[-1] != snapshot.last_model(self.folder, "CartPole-v1", 0)

        wait_until(have_learned, lambda: f"two checkpoints\n{self.last_words()}", PATIENCE_S, progress=self.marks)

    # --- faults ---

    def disturb(self, burst: list[Fault]) -> None:
        """Let several faults happen at a time, and see that everybody goes on."""
        self._alone = len(burst) == 1
        with ThreadPoolExecutor(len(burst)) as pool:
            for done in [pool.submit(self._let_happen, fault) for fault in burst]:
                done.result()
        self.wait_for_progress()

    def _let_happen(self, fault: Fault) -> None:
        kind, who, seconds = fault
        if who == REDIS:
            self._disturb_redis(fault)
            return
        proxy = self._proxies[who]
        happenings: dict[str, Callable[[], None]] = {
            "kill": lambda: self._replace(who, signal.SIGKILL, {-signal.SIGKILL}),
            "terminate": lambda: self._terminate(who),
            "freeze": lambda: self.processes[who].freeze(seconds),
            "freeze past the lease": lambda: self.processes[who].freeze(TTL_S + 0.5 + seconds),
            "usurp": lambda: self._usurp(who),
            "intrude": lambda: self._intrude(who),
            "reset": lambda: proxy.reset_often(seconds),
            "cut": lambda: proxy.cut(seconds),
            "delay": lambda: proxy.slow(2 * seconds, delay=seconds / 5),
            "drop": lambda: proxy.drop(2 * seconds, silent=False),
            "drop silently": lambda: proxy.drop(2 * seconds, silent=True),
        }
        happenings[kind]()

    def _terminate(self, who: str) -> None:
        if who == LEARNER:
            self._may_leave.update(self.who[1:])
        self._replace(who, signal.SIGTERM, {0} if self._alone else {0, 1})  # 1: Redis may be away at that moment

    def _replace(self, who: str, how: signal.Signals, codes: set[int]) -> None:
        process = self.processes[who]
        if process.exit_code is not None:
            return  # it has finished meanwhile, or left with the learner
        process.send(how)
        self.wait(
            process, codes | ({0} if who in self._may_leave or self.finished() else set()), f"{who} after {how.name}"
        )
        self._may_leave.discard(who)
        self.start(who)

    def _usurp(self, who: str) -> None:
        """A successor takes the place of a stopped actor, which must notice when it wakes up, and leave."""
        old = self.processes[who]
        old.send(signal.SIGSTOP)
        lease = Keys(self.name, self.tap.runs[-1]).actor_lease(int(who))
        holder = self._ask(lambda: self.client.get(lease))
        time.sleep(TTL_S + 0.5)
        before = self.marks()[who]  # not before: what was on its way when the actor was stopped has arrived
        self.start(who)
        wait_until(
            lambda: self.marks()[who] != before or self.finished(),
            lambda: f"the successor of actor {who} to go on\n{self.last_words()}",
            PATIENCE_S,
        )
        assert self._ask(lambda: self.client.get(lease)) not in (holder, None) or self.finished()
        old.send(signal.SIGCONT)
        self.wait(old, {0, 1} if self.finished() else {1}, f"actor {who}, whose lease is lost")
        said = old.output
        assert "lost its lease" in said or "was lost: another process has taken its place" in said or self.finished()

    def _intrude(self, who: str) -> None:
        """Another process of the same kind and number is refused."""
        intruder = self.beside(who)
        self.wait(intruder, {0, 2} if self.finished() else {2}, f"a second {who}", 4 * TTL_S)
        refused = "is already running" in self._last_line(who)
        assert refused or self.finished(), f"a second {who}: got the lease\n{self.last_words()}"

    def _disturb_redis(self, fault: Fault) -> None:
        if fault.kind == "kill":
            self.server.stop(signal.SIGKILL)
            time.sleep(fault.seconds)
            self.server.start()
        else:
            self.server.freeze(fault.seconds)

    # --- the end ---

    def leave(self) -> None:
        """Stop the actors, wait until the learner has read everything, and stop it."""
        for who in self.who[1:]:
            self._end(who)
        self.tap.catch_up()
        newest = {actor: messages[-1][0] for actor, messages in self.tap.messages.items()}
        wait_until(
            lambda: all(self._handed_out(actor) >= number for actor, number in newest.items()),
            lambda: f"the learner to read everything\n{self.last_words()}",
            PATIENCE_S,
        )
        self._end(LEARNER)

    def _handed_out(self, actor: int) -> int:
        """The last message of an actor that the present learner has taken in."""
        taken = notes.read_messages(self.folder)
        present = str(self.processes[LEARNER].pid)
        return max((it.sequence for it in taken if (it.process, it.actor) == (present, actor)), default=0)

    def finish(self) -> None:
        """Wait for the learner to finish, and send those home who wait for a next run."""

        def is_over() -> bool:
            self.revive()
            return self.finished()

        def what() -> str:
            return f"the learner to finish\n{self.last_words()}"

        wait_until(is_over, what, PATIENCE_S, every=0.1, progress=self.record)
        self.wait(self.processes[LEARNER], {0}, LEARNER)
        for who in self.who[1:]:
            self._end(who)
        self.tap.catch_up()

    def _end(self, who: str) -> None:
        process = self.processes[who]
        process.terminate()
        self.wait(process, {0}, f"{who} at the end")

    def check_nobody_is_left(self) -> None:
        """No process; and of connections, only ours and the two of the tap."""
        assert not self._all.living()
        wait_until(lambda: len(self.client.client_list()) <= 3, lambda: f"the end of {self.client.client_list()}", 10)


@contextmanager
def chaos(folder: Path, options: list[str], actors: int, mutations: dict[str, str] | None = None) -> Iterator[Chaos]:
    """A run with its own Redis server, of which nothing is left at the end."""
    with ExitStack() as stack:
        yield Chaos(stack, folder, options, actors, mutations or {})
