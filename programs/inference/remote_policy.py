"""A policy that computes elsewhere: it asks an inference server, and another one when that is gone.

The frame stack and the recurrent state are at the server, which needs the newest frame alone. This end has them, too: a
server that does not know them any more, or another one, gets them with the next request. So a server that is killed
loses nothing. No torch is loaded here. Letters: E environments of a call, S frames of a stack.
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, AskingPolicy
from rainbow_iqn_apex.common.errors import PolicyLostError, Stopped, UserError
from rainbow_iqn_apex.memory.chunk import forms
from rainbow_iqn_apex.memory.environment_spec import ActionSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType, section
from rainbow_iqn_apex.programs.inference.finding import ServerFinder
from rainbow_iqn_apex.programs.inference.link import Link
from rainbow_iqn_apex.programs.inference.messages import STACK, Answer, Kind, Refusal, Request, decode, encode

if TYPE_CHECKING:
    from torch import Tensor

ALONE_S = 60.0  # at least, to wait for a server that computes for each client alone, one after the other
_STACK = f"state.{STACK}"  # is among the forms, but is not sent back
_TICK_S = 0.2  # between two looks whether this process shall stop
STOP_S = 5.0  # in which a step that is under way may end before a stop
_END_S = 0.3  # in which a process learns that it shall end, too
_KEPT = 8  # newest states whose calls the server may know


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
        self._link: Link = finder.find()
        self._alone = self._link.welcome.alone
        self.groups = 1 if self._alone else 2
        self.spec = self._link.welcome.spec
        self._places = self._link.welcome.places  # no later server has fewer
        self._answer = self._link.welcome.answer  # forms of what is answered for one environment
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
                f"--nb-actor: inference server {self._link.address.number} was started for the {self._places} "
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
        self._link.send(call.encoded(next((number for state, number in self._known if state is call.state), 0)))

    def _finish(self, number: int) -> Answer:
        """Wait for the answer to a call."""
        began, patience = time.monotonic(), self._finder.patience
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
        if not self._alone and self._finder.knows_better(self._link.address):
            self._replace(None)
        return answer

    def _receive(self) -> None:
        """Take the next answer, if one comes within a moment."""
        if (data := self._link.receive(_TICK_S)) is None:
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
            self._link.send(call.encoded(0))
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
        self._link.close()
        if self._alone:
            time.sleep(_END_S)
            self._finder.check()  # where all are told to stop, or the run is over, the server may be the first to leave
            self._lost = why
            raise PolicyLostError(
                f"inference server {self._link.address.number} is lost ({why}); in lockstep this actor ends, too, and "
                "goes on from its last commit when it is started again"
            )
        self._connect(why)

    def _connect(self, why: Exception | None) -> None:
        """Find a server, and send it the calls that are under way; none is where this actor's policy was lost."""
        self._known = []
        if self._lost is not None:
            self._calls.clear()
            self._lost = None
        while True:
            self._link = self._finder.find(self._link.address, why)
            try:
                found = self._link.welcome
                if found.places < self._places:
                    raise Refusal("it was started for fewer actors")
                if (found.spec, found.answer, found.alone) != (self.spec, self._answer, self._alone):
                    raise Refusal("it has another agent")
                for call in self._calls.values():
                    if call.answer is None:
                        self._send(call)
            except (OSError, Refusal) as error:
                self._link.close()
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
