"""The actor's side of inference on a server: a connection, the choice of a server, and a policy that computes there.

The frame stack and the recurrent state are at the server, which needs the newest frame alone. This end has them, too: a
server that does not know them any more, or another one, gets them with the next request. So a server that is killed
loses nothing. No torch is loaded here. Letters: E environments of a call, S frames of a stack.
"""

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import zmq
from zmq.utils.monitor import recv_monitor_message

from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, AskingPolicy
from rainbow_iqn_apex.common.errors import PolicyLostError, Stopped, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.chunk import forms
from rainbow_iqn_apex.memory.environment_spec import ActionSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType, section
from rainbow_iqn_apex.programs.inference.exchange import (
    STACK,
    Answer,
    ClientId,
    Kind,
    Refusal,
    Request,
    Welcome,
    decode,
    encode,
    endpoint,
    greet,
    greeted,
    open_socket,
)

if TYPE_CHECKING:
    from torch import Tensor

LEAST_S = 5.0  # for which a client waits at least for a server that sends nothing
MOST_S = 300.0  # the same, at most
_LONGER = 4  # times the time of an answer
_FORGOTTEN = 0.01  # of the wait, with each answer
_TICK_S = 0.2  # between two looks whether this process shall stop, or the server has gone
_GONE = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

_AVOIDED_S = 15.0  # for which a server that has failed is asked only if there is no other
_BALANCE_S = 20.0  # between two looks whether another server has less to do
_PAUSE_S = 0.3  # between two looks whether a server is there
_START_ONE = "; start one with launch_inference.py"

ALONE_S = 60.0  # at least, to wait for a server that computes for each client alone, one after the other
_STACK = f"state.{STACK}"  # is among the forms, but is not sent back
STOP_S = 5.0  # in which a step that is under way may end before a stop
_END_S = 0.3  # in which a process learns that it shall end, too
_KEPT = 8  # newest states whose calls the server may know


class Patience:
    """How long to wait for a server that sends nothing until it counts as gone.

    That is some times longer than its answers took. It doubles whenever a server is given up, as the only one there may
    just be slow.
    """

    def __init__(self) -> None:
        self.seconds = LEAST_S

    def answered(self, took: float) -> None:
        """Count an answer that took so many seconds."""
        self.seconds = min(MOST_S, max(LEAST_S, _LONGER * took, (1 - _FORGOTTEN) * self.seconds))

    def ended(self) -> None:
        """Count a server that was given up."""
        self.seconds = min(MOST_S, 2 * self.seconds)


class ServerConnection:
    """A connection to the server of an address, which has the key of that address; call `close` in the end.

    Raises OSError or Refusal if there is none. While it waits it calls `check`, and lets what that raises pass.
    """

    def __init__(
        self,
        address: Address,
        host: str,
        port: int,
        who: ClientId,
        patience: Patience,
        check: Callable[[], None],
    ) -> None:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_ipv6 = family == socket.AF_INET6
        self.address = address
        self._patience = patience
        self._loss = "no server of this run answers there"
        self._context = zmq.Context()
        try:
            self._socket = open_socket(self._context, zmq.DEALER)
            self._socket.ipv6 = is_ipv6
            self._socket.rcvtimeo = int(1000 * _TICK_S)
            self._socket.reconnect_ivl = -1  # the server may have lost what it has of this client
            self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
            self._socket.curve_serverkey = bytes.fromhex(address.key)
            self._events = self._socket.get_monitor_socket(_GONE)
            self._socket.connect(endpoint(str(place[0]), port, is_ipv6=is_ipv6))
            self.welcome = self._greet(who, check)
        except BaseException:
            self.close()
            raise
        self._loss = "the inference server has gone"

    def _greet(self, who: ClientId, check: Callable[[], None]) -> Welcome:
        end = time.monotonic() + self._patience.seconds
        self.send(greet(who))
        while (data := self.receive()) is None:
            check()
            if time.monotonic() >= end:
                raise TimeoutError("the inference server does not answer")
        return greeted(data, Welcome)

    def send(self, data: bytes) -> None:
        """Send a message; raises OSError, also if the server does not read it for a while."""
        end = time.monotonic() + self._patience.seconds
        while True:
            try:
                self._socket.send(data, zmq.NOBLOCK)
            except zmq.Again:
                self._check()
                if time.monotonic() >= end:
                    raise TimeoutError("the inference server does not read") from None
                self._socket.poll(int(1000 * _TICK_S), zmq.POLLOUT)
            else:
                return

    def receive(self) -> bytes | None:
        """Return the next message, None if it does not come within a moment; raises OSError."""
        try:
            data = self._socket.recv()
        except zmq.Again:
            self._check()
            return None
        if not data:
            raise ConnectionResetError("the inference server refuses what this client has sent")
        return data

    def _check(self) -> None:
        if self._events.poll(0):
            recv_monitor_message(self._events)
            raise ConnectionResetError(self._loss)

    def close(self) -> None:
        """End the connection."""
        self._context.destroy()


def connect(address: Address, who: ClientId, patience: Patience, check: Callable[[], None]) -> ServerConnection:
    """Connect to a server by the port that it has on this machine, or by that for other machines."""
    if address.machine == this_host():
        with suppress(ConnectionError):  # another machine may have the same name, or it is in another container
            return ServerConnection(address, "127.0.0.1", address.local_port, who, patience, check)
    if not address.port:
        raise ConnectionRefusedError("it serves its own machine alone")
    return ServerConnection(address, address.host, address.port, who, patience, check)


class ServerFinder:
    """Connects to the servers of a run.

    `check` raises what ends the process: Stopped, RunOver. It is called again and again during a wait.
    """

    def __init__(self, servers: InferenceServers, who: ClientId, check: Callable[[], None]) -> None:
        self._who = who
        self._servers = servers
        self.check = check
        self.patience = Patience()
        self._failed: dict[int, float] = {}  # when each server has last failed
        self._trouble = ""  # of the newest of them
        self._next_balance = time.monotonic() + _BALANCE_S

    def find(self, lost: Address | None = None, why: Exception | None = None) -> ServerConnection:
        """Return a connection to a server, once there is one; prints which server was left, and why.

        Without a reason, another server has less to do.
        """
        if lost is not None and why is None:
            print(f"Inference server {lost.number} has more to do than another: looking for another", flush=True)
        elif lost is not None and why is not None:
            print(f"Inference server {lost.number} is lost ({one_line(why, 200)}): looking for another", flush=True)
            self._fail(lost, why)
        waiting = WaitReporter("an inference server", hint=lambda: self._trouble or _START_ONE)
        while True:
            self.check()
            for address in sorted(self._servers.found(), key=self._rank):
                self.check()
                if self._has_failed(address):
                    time.sleep(_PAUSE_S)
                try:
                    connection = connect(address, self._who, self.patience, self.check)
                except (OSError, ValueError, Refusal) as error:  # ValueError: the name of a host that can be none
                    self._fail(address, error)
                    continue
                if lost is not None:
                    print(f"Inference server {address.number} is asked now", flush=True)
                return connection
            waiting.check()
            time.sleep(_PAUSE_S)

    def _fail(self, address: Address, why: Exception) -> None:
        self._failed[address.number] = time.monotonic()
        self._trouble = f"; inference server {address.number}: {one_line(why, 200)}"
        if isinstance(why, TimeoutError):
            self.patience.ended()

    def _rank(self, address: Address) -> tuple[float, int, float]:
        """Return where a server comes in the order in which to try them.

        If all have failed, they take turns: the one with the fewest clients may be one that can never be asked.
        """
        failed = self._failed[address.number] if self._has_failed(address) else 0.0
        return failed, address.clients, random.random()

    def _has_failed(self, address: Address) -> bool:
        return time.monotonic() - self._failed.get(address.number, -_AVOIDED_S) < _AVOIDED_S

    def knows_better(self, own: Address) -> bool:
        """Return, seldom, that another server has so much less to do that this client had better go there.

        Each client of a full server goes with a probability, so that half of the difference goes and not all.
        """
        if time.monotonic() < self._next_balance:
            return False
        self._next_balance = time.monotonic() + _BALANCE_S
        clients = {each.number: each.clients for each in self._servers.found() if not self._has_failed(each)}
        if own.number not in clients:
            return False
        surplus = clients[own.number] - min(clients.values())
        return surplus > 1 and random.random() < surplus / (2 * clients[own.number])


class _Call:
    """A request that is under way; `state` is the policy's before it, and `stack` [E, S, ...] has the new frame."""

    def __init__(self, request: Request, state: Arrays, stack: Array | None) -> None:
        self.request = request
        self.state = state
        self.stack = stack
        self.sent = time.monotonic()
        self.answer: Answer | None = None

    def encoded(self, after: int) -> bytes:
        """Return the request, with the state if it goes on after no call that the server knows."""
        own = {} if after else {f"state.{name}": array for name, array in self.state.items()}
        return encode(replace(self.request, after=after, arrays=self.request.arrays | own))


class RemotePolicy(AskingPolicy):
    """Acts as the policy of the inference servers, in the environments from `first` on of those of all actors.

    In lockstep, and for an evaluation actor, the server has a policy for this actor alone, whose random numbers are
    this one's. Losing that server raises PolicyLostError. An actor ends then, and its successor goes on from the last
    commit; `reseed` begins anew at another server, as an evaluation does with each episode.
    """

    def __init__(self, finder: ServerFinder, first: int, action: ActionSpec) -> None:
        self._finder = finder
        self._action = action
        self._first = first
        self._calls: dict[int, _Call] = {}  # under way
        self._known: list[tuple[Arrays, int]] = []  # states that the server has, and the calls after which they are
        self._number = 0
        self._told_to_wait = 0.0  # when the server last did so
        self._stopping = 0.0  # when this process was first found to be asked to stop
        self._random: Array | None = None  # state of the policy's random numbers, in lockstep
        self._lost: Exception | None = None  # why the server is lost that had this actor's own policy
        self._connection: ServerConnection = finder.find()
        self._alone = self._connection.welcome.alone
        self.groups = 1 if self._alone else 2
        self.spec = self._connection.welcome.spec
        self._places = self._connection.welcome.places  # no later server has fewer
        self._answer = self._connection.welcome.answer  # forms of what is answered for one environment
        self._has_stack = _STACK in self._answer

    def load(self, weights: "dict[str, Tensor]", version: int) -> None:  # noqa: ARG002 - the servers load them
        """Act with weights of this version or newer ones if computed alone; else each answer has its own version."""
        self.version = self._order("load", version).version if self._alone else version

    def random_state(self) -> Array | None:
        """Return the state of the random numbers, which are at the server; None without lockstep."""
        if self._alone and self._random is None:
            raise AssertionError("nothing was asked yet")
        return self._random

    def restore_random_state(self, state: Array) -> None:
        """Let the server's policy go on drawing where this state was."""
        if self._alone:
            self._order("reseed", 0, {"random": state})

    def reseed(self, seed: int) -> None:
        """Let a seed decide all that the server's policy draws in lockstep; without, others draw there, too."""
        if self._lost is not None:
            self._connect(self._lost)
        if self._alone:
            self._order("reseed", seed)

    def _order(self, kind: Kind, step: int, arrays: Arrays | None = None) -> Answer:
        return self._finish(self._begin(kind, arrays or {}, step, {}, None))

    def ask(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> int:
        """Ask for actions without waiting for them; takes what `act` does, and returns the call for `take`.

        Raises UserError where the servers were started for fewer actors.
        """
        own = self._first + np.arange(len(rows.reward)) if places is None else places
        if own.max() >= self._places:
            raise UserError(
                f"--nb-actor: inference server {self._connection.address.number} was started for the {self._places} "
                f"environments of all actors, and this actor needs {own.max() + 1}: start servers with the larger "
                "--nb-actor"
            )
        arrays = {f"rows.{name}": array for name, array in rows._asdict().items()} | {"places": own.astype(np.int64)}
        stack = pushed(rows, state, self.spec.stack) if self._has_stack else None
        return self._begin("act", arrays, -1 if step is None else step, state, stack)

    def take(self, call: int) -> Acted:
        """Wait for the actions of a call; if need be, ask again, and another server."""
        stack = self._calls[call].stack
        answer = self._finish(call)
        state = {name: array.copy() for name, array in section(answer.arrays, "state.").items()}
        if stack is not None:
            state[STACK] = stack
        self._known = [*self._known[1 - _KEPT :], (state, call)]
        self.version = answer.version
        return ActorOutput(answer.arrays["actions"], section(answer.arrays, "extras."), answer.version), state

    def initial_priorities(self, rows: Arrays) -> Array | None:
        """Ask for the priorities [samples] of a chunk's rows; none depends on observations and states, which stay."""
        if not self.spec.prioritised:
            return None
        arrays = {f"rows.{name}": array for name, array in rows.items() if name != "obs" and name[:6] != "state."}
        return self._order("priorities", 0, arrays).arrays["priorities"].copy()

    def _begin(self, kind: Kind, arrays: Arrays, step: int, state: Arrays, stack: Array | None) -> int:
        self._number += 1
        call = _Call(Request(self._number, kind, 0, step, arrays), state, stack)
        self._calls[self._number] = call
        try:
            self._send(call)
        except (OSError, Refusal) as error:
            self._replace(error)
        return self._number

    def _send(self, call: _Call) -> None:
        call.sent = time.monotonic()
        self._connection.send(call.encoded(next((number for state, number in self._known if state is call.state), 0)))

    def _finish(self, number: int) -> Answer:
        """Wait for the answer to a call."""
        began = time.monotonic()
        patience = self._finder.patience
        while (answer := self._calls[number].answer) is None:
            try:
                self._receive()
                limit = max(patience.seconds, ALONE_S) if self._alone else patience.seconds
                if time.monotonic() > max(began, self._told_to_wait) + limit:
                    raise TimeoutError(f"it has not answered for {limit:.0f} s")
            except (OSError, Refusal) as error:
                self._replace(error)
                began = time.monotonic()
        del self._calls[number]
        if not self._alone and self._finder.knows_better(self._connection.address):
            self._replace(None)
        return answer

    def _receive(self) -> None:
        """Take the next answer, if one comes within a moment."""
        if (data := self._connection.receive()) is None:
            self._heed()
            return
        answer = decode(data, Answer)
        call = self._calls.get(answer.call)
        if call is None or call.answer is not None:
            raise Refusal("it answers what was not asked")
        if answer.wait:
            self._told_to_wait = time.monotonic()
            self._heed()
        elif answer.wants_state:
            self._connection.send(call.encoded(0))
        else:
            self._random = answer.arrays.pop("random", None)
            self._check(call, answer)
            call.answer = answer
            self._finder.patience.answered(time.monotonic() - call.sent)

    def _heed(self) -> None:
        """Raise what this process shall end by. A stop waits up to STOP_S: actors commit behind whole steps."""
        try:
            self._finder.check()
        except Stopped:
            self._stopping = self._stopping or time.monotonic()
            if time.monotonic() - self._stopping > STOP_S:
                raise

    def _check(self, call: _Call, answer: Answer) -> None:
        """Raise Refusal for arrays of other names or sizes than a server of ours gives."""
        arrays = answer.arrays
        if call.request.kind == "act":
            count = len(call.request.arrays["places"])
            wanted = {name: ((count, *shape), dtype) for name, (shape, dtype) in self._answer.items()}
            wanted.pop(_STACK, None)
        else:
            wanted = {"priorities": ((self.spec.samples,), "float32")} if call.request.kind == "priorities" else {}
        if forms(arrays) != wanted:
            raise Refusal(f"it answers with {forms(arrays)} in the place of {wanted}")
        if call.request.kind == "act" and (error := self._action.error(arrays["actions"])):
            raise Refusal(f"it answers with {error}")

    def _replace(self, why: Exception | None) -> None:
        """Go to another server, or to the same one again, with all calls that are under way."""
        self._connection.close()
        if self._alone:
            time.sleep(_END_S)
            self._finder.check()  # where all are told to stop, or the run is over, the server may be the first to leave
            self._lost = why
            raise PolicyLostError(
                f"inference server {self._connection.address.number} is lost ({why}); in lockstep this actor ends, "
                "too, and goes on from its last commit when it is started again"
            )
        self._connect(why)

    def _connect(self, why: Exception | None) -> None:
        """Find a server, and send it the calls that are under way; none is where this actor's policy was lost."""
        self._known = []
        if self._lost is not None:
            self._calls.clear()
            self._lost = None
        while True:
            self._connection = self._finder.find(self._connection.address, why)
            try:
                found = self._connection.welcome
                if found.places < self._places:
                    raise Refusal("it was started for fewer actors")
                if (found.spec, found.answer, found.alone) != (self.spec, self._answer, self._alone):
                    raise Refusal("it has another agent")
                for call in self._calls.values():
                    if call.answer is None:
                        self._send(call)
            except (OSError, Refusal) as error:
                self._connection.close()
                why = error
            else:
                return


def pushed(rows: Rows, state: Arrays, size: int) -> Array:
    """Push the new frames [E, ...] onto the stacks [E, size, ...], as `agents.ops.frames.push_frame` does."""
    obs = rows.obs
    older = state[STACK][:, 1:] if state else np.zeros((len(obs), size - 1, *obs.shape[1:]), obs.dtype)
    stack = np.concatenate((older, obs[:, None]), axis=1)
    stack[rows.step_type == int(StepType.FIRST), :-1] = 0
    return stack
