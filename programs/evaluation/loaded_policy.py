"""A policy with the weights of a snapshot, which acts as in an evaluation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rainbow_iqn_apex.agents.registry import find_agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import Environment
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec
from rainbow_iqn_apex.memory.rows import Arrays, Rows, StepType
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent, select_device
from rainbow_iqn_apex.programs.common import open_environment, temporary_environment
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew
from rainbow_iqn_apex.saber.games import PUBLISHED_ACTIONS


class LoadedPolicy:
    """Acts for E environments at once, as evaluations do; keeps their frame stacks and LSTM states.

        policy = load_policy("results/")
        environment = policy.environment(seed=1)
        row = environment.reset()
        while not environment.end:
            row = environment.step(policy.act(row.obs))

    Raises UserError for weights that do not fit.
    """

    def __init__(self, args: Args, weights: dict[str, torch.Tensor]) -> None:
        self._device = select_device(args)
        with temporary_environment(replace(args, render=False), args.seed) as environment:
            self.spec = environment.spec  # of observations and actions
            self.action_repeat = environment.action_repeat  # frames per agent step
        self.codes = action_codes(args, weights, self.spec)
        chosen = self.spec._replace(action=Discrete(len(self.codes))) if self.codes else self.spec
        with torch.random.fork_rng(_seeded_devices()):
            self.policy = make_agent(args, chosen, self._device, learns=False, seed=args.seed)
        snapshot.restore_weights(self.policy, {"model_state_dict": weights}, trains=False)
        self.weights_hash = snapshot.weights_hash(self.policy.model, weights)
        self._args = args
        self._weights = {name: tensor.to(self._device) for name, tensor in weights.items()}
        self._state: Arrays = {}
        self._count = 0  # environments of the last call of `act`
        self.reset(args.seed)

    def reset(self, seed: int) -> None:
        """Begin new episodes in all environments; `seed` decides everything that the policy draws from now on."""
        begin_anew(self.policy, self._weights, 0, seed)
        self._state = {}
        self._count = 0

    def act(self, observations: Any, starts: Any = False, rewards: Any = 0.0) -> Any:
        """Choose actions for observations [E, ...], or one action for the observation [...] of a single environment.

        Args:
            observations: of `spec.observation`'s shape and dtype, each as its environment gives it, never a stack.
            starts: [E] whether the observation is the first of an episode; all are, at the first call after `reset`.
            rewards: [E] what arrived with the observation; recurrent agents see it.

        Raises:
            UserError: observations of another shape or dtype, or none.
        """
        shape = self.spec.observation.shape
        dtype = self.spec.observation.dtype
        obs = np.require(observations, requirements=["C", "W"])  # as PyTorch takes them
        if obs.shape[max(0, obs.ndim - len(shape)) :] != shape or obs.ndim - len(shape) not in (0, 1):
            raise UserError(f"observations: expected shape {shape} or [E, ...] of these, got {obs.shape}")
        if obs.dtype != dtype:
            raise UserError(f"observations: expected {dtype}, got {obs.dtype}")
        is_single = obs.ndim == len(shape)
        obs = obs[None] if is_single else obs  # [E, ...]
        if not len(obs):
            raise UserError("observations: expected at least one")
        if len(obs) != self._count:
            self._state = {}
            self._count = len(obs)
            starts = True
        first = np.broadcast_to(np.asarray(starts, bool), len(obs))  # [E]
        step_type = np.where(first, StepType.FIRST, StepType.MID).astype(np.uint8)
        reward = np.where(first, 0, rewards).astype(np.float32)
        rows = Rows(obs, step_type, reward, np.ones(len(obs), np.float32))
        output, self._state = self.policy.act(rows, self._state, None)
        actions = np.array([self.codes[action] for action in output.actions]) if self.codes else output.actions
        return actions[0] if is_single else actions

    def environment(self, seed: int, entry: int = 0) -> Environment:
        """Open an environment of those that the policy was trained in; `seed` decides all its randomness.

        Of a policy of several games or environments it is number `entry`, in the order of its run's list.
        """
        return open_environment(self._args, seed, entry, evaluation=True)


def _seeded_devices() -> range:
    """Return the GPUs whose random numbers `torch.manual_seed` would change; none before CUDA is in use."""
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return range(torch.cuda.device_count() if in_use else 0)


def action_codes(args: Args, weights: dict[str, torch.Tensor], spec: EnvironmentSpec) -> Sequence[int]:
    """Return the environment's action for each action of the network; empty if both have the same actions.

    Other projects' snapshots of some games choose among fewer actions than the environment has.
    """
    published = PUBLISHED_ACTIONS.get(args.game, ()) if args.env == "atari" else ()
    chosen = find_agent(args.agent).load().sizes_of(weights).get("nb_actions")
    return published if chosen == len(published) and spec.action != Discrete(len(published)) else ()
