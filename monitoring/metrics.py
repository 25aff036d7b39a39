"""All metrics by their fixed names, which are also TensorBoard's tags, and the names that agents give their own.

Any other name is an error.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Metric:
    """Describe a number that programs measure."""

    name: str  # group/name
    unit: str
    meaning: str
    kind: Kind = "gauge"  # a counter only grows, but for a learner that goes back to its checkpoint

    @property
    def help(self) -> str:
        """Unit and meaning in one line."""
        return f"{self.unit} {self.meaning}".strip()


# Upper bounds of a histogram's bins, four a decade; the last bin has what lies above.
PRIORITY_BOUNDS = tuple(10 ** (quarter / 4) for quarter in range(-16, 13))

_ALL = (
    Metric(
        "rollout/ep_rew_mean",
        "score",
        "mean of the newest 100 training episodes, as SABER counts scores; actors report their own",
    ),
    Metric("rollout/ep_rew_before", "score", "mean of as many training episodes before these, or of the older half"),
    Metric("rollout/ep_len_mean", "agent steps", "mean length of the newest 100 training episodes"),
    Metric("rollout/episodes", "episodes", "training episodes in the log", "counter"),
    Metric("eval/mean_reward", "score", "mean of the newest 100 episodes of evaluation actors"),
    Metric("eval/mean_ep_length", "agent steps", "mean length of these episodes"),
    Metric("eval/episodes", "episodes", "episodes of evaluation actors in their log", "counter"),
    Metric("time/total_timesteps", "agent steps", "played by all actors", "counter"),
    Metric("time/frames", "frames", "of the environments: agent steps times action repeat", "counter"),
    Metric("time/steps_per_second", "agent steps/s", "played by all actors"),
    Metric("time/fps", "frames/s", "of the environments of all actors"),
    Metric("time/progress", "share", "of T-max that is learned"),
    Metric("time/remaining", "s", "until T-max, at the speed of the last minutes"),
    Metric("train/timesteps", "agent steps", "that all updates stand for: the learner's T", "counter"),
    Metric("train/n_updates", "updates", "steps of the optimiser since the learner began", "counter"),
    Metric("train/updates_per_second", "updates/s", "made"),
    Metric("train/version", "versions", "of the weights, the newest published", "counter"),
    Metric("train/loss", "loss", "mean of the last updates"),
    Metric("train/value", "discounted return", "mean estimate of the sampled rows (--trust-threshold: of the trusted)"),
    Metric("train/gradient_norm", "norm", "of the networks' gradients, before they are clipped"),
    Metric("train/entropy", "nats", "of the policy; with --trust-threshold at the trusted rows"),
    Metric("train/entropy_cost", "weight", "of the entropy in the loss, where it is learned; for SAC behind the step"),
    Metric("train/kl", "nats", "from the policy that acted to the one that learns: KL(mu, pi)"),
    Metric("train/kl_cost", "weight", "of that in the loss, where it is learned"),
    Metric("train/reverse_kl", "nats", "KL(pi, mu)"),
    Metric("train/reverse_kl_cost", "weight", "of that in the loss, where it is learned"),
    Metric("train/reference_kl", "nats", "from the reference policy to the one that learns"),
    Metric("train/reference_kl_cost", "weight", "of that in the loss, where it is learned"),
    Metric("train/clipped", "share", "of rows whose ratio is beyond PPO's bounds"),
    Metric("train/temperature", "returns", "by which V-MPO divides advantages"),
    Metric("train/policy_loss", "loss", "of the policy"),
    Metric("train/value_loss", "loss", "of the values"),
    Metric("train/policy_cloning_loss", "nats", "KL(mu, pi) of replayed rows, mu the policy that acted"),
    Metric(
        "train/value_cloning_loss", "squared return", "change of the values of replayed rows since they were played"
    ),
    Metric("train/trusted", "share", "of the batch's rows that are within LASER's trust region"),
    Metric(
        "train/policy_lag", "versions", "from the weights that acted last in a chunk to those that learn, on average"
    ),
    Metric(
        "train/largest_policy_lag",
        "versions",
        "from the weights that acted last in a chunk to those that learn, at most",
    ),
    Metric(
        "buffer/rows",
        "agent steps",
        "held by replay, queue or mixture; of several learners, learner 0's times their number",
    ),
    Metric("buffer/fill", "share", "of the capacity that is held"),
    Metric("buffer/sampled_age", "agent steps", "between the newest row and a sampled one, on average"),
    Metric("buffer/samples_per_insert", "rows", "learned from for each row that was inserted"),
    Metric("buffer/priorities", "priority", "of rows in the replay, a sample of 10 000", "histogram"),
    *(
        Metric(f"share/{part}", "share", f"of the process's time in which it {does}")
        for part, does in {
            "take_in": "takes experience into the replay or queue, and episodes into the log",
            "sample": "draws batches",
            "update": "makes updates",
            "publish": "hands over weights and writes the run's record",
            "save": "saves, plots and reports",
            "act": "computes actions",
            "environment": "steps its environments",
            "play": "plays an episode, acting and environment together",
            "pack": "cuts rows into chunks",
            "send": "sends experience and its state",
            "pull": "fetches weights",
            "wait": "waits for other processes, and for a Redis server that does not answer",
            "other": "does anything else",
        }.items()
    ),
    Metric("actor/steps", "agent steps", "of this actor, over all its environments", "counter"),
    Metric("actor/steps_per_second", "agent steps/s", "of this actor"),
    Metric("actor/episodes", "episodes", "finished since the process began", "counter"),
    Metric("actor/version", "versions", "of the weights that act", "counter"),
    Metric("actor/unread", "messages", "of this actor that the learner had not read when the actor last looked"),
    Metric("inference/clients", "actors", "that ask this inference server"),
    Metric("inference/requests", "requests", "that it has answered", "counter"),
    Metric("inference/batch", "environments", "computed together, mean of the newest 1000 batches"),
    Metric("inference/latency", "s", "from when the server reads a request to its answer, median of the newest 1000"),
    Metric("inference/slowest", "s", "the same, exceeded by one in a hundred"),
    Metric("process/memory", "bytes", "resident in memory"),
    Metric("process/cpu", "cores", "in use"),
    Metric("process/gpu_memory", "bytes", "of the GPU that PyTorch holds"),
    Metric("process/restarts", "starts", "of this process's number in this run, after the first", "counter"),
    Metric("redis/used_memory", "bytes", "used by the Redis server, for all its runs"),
    Metric("redis/max_memory", "bytes", "that the Redis server may use; 0: no limit"),
    Metric("redis/entries", "messages", "in the actors' logs"),
    Metric(
        "redis/unread",
        "messages",
        "in Redis that the learner had not read when it last looked, not when the actors did",
    ),
    Metric(
        "redis/quarantined",
        "messages",
        "that could not be read, since the learner began; of several learners, by learner 0: the others print theirs",
        "counter",
    ),
)
METRICS = {metric.name: metric for metric in _ALL}

_TAG = "train/"  # before the names of an agent's metrics
MOST_TAGS = 60  # metrics of an agent
_LONGEST_TAG = 60  # characters
_COUNTED = {"train/timesteps", "train/n_updates", "train/updates_per_second", "train/version"}  # by the learner


class Tags:
    """Gives each metric of an agent its name among all metrics, whatever the agent calls it; use it for one run."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}  # by the agent's name

    def of(self, name: str) -> str | None:
        """Return a metric's name here, always the same; None for one too many."""
        if name not in self._tags and len(self._tags) < MOST_TAGS:
            self._tags[name] = self._free(_TAG + ("".join(map(_shown, str(name))) or "_"))
        return self._tags.get(name)

    def _free(self, tag: str) -> str:
        taken = _COUNTED.union(self._tags.values())
        endings = ("" if number == 1 else f"_{number}" for number in count(1))
        tags = (tag[: _LONGEST_TAG - len(ending)] + ending for ending in endings)
        return next(tag for tag in tags if tag not in taken)


def _shown(character: str) -> str:
    return character if character.isprintable() and character != " " else "_"


def is_given(name: str) -> bool:
    """Return whether a name is one of `Tags` that is not in the list."""
    is_tag = name.startswith(_TAG) and len(_TAG) < len(name) <= _LONGEST_TAG
    return is_tag and name not in METRICS and all(_shown(character) == character for character in name)


def known(names: Iterable[str]) -> list[str]:
    """Return which of the names are metrics: those in the list, and as many others as an agent may have."""
    others = count()
    return [name for name in names if name in METRICS or (is_given(name) and next(others) < MOST_TAGS)]


def metric_of(name: str) -> Metric:
    """Return what a metric is; of one that an agent has named nothing else is known."""
    return METRICS.get(name) or Metric(name, "", "mean of the last updates, as the agent names it")


def check_names(names: set[str]) -> None:
    """Raise ValueError for names that are no metrics."""
    if unknown := sorted(names.difference(known(names))):
        raise ValueError(f"no such metrics: {', '.join(map(ascii, unknown))}; monitoring/metrics.py lists them")


class Rate:
    """Averages the growth of a counter over the last seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque()

    def per_second(self, count: float) -> float | None:
        """Note a count of this moment, and return the growth per second; None until it has grown.

        What comes before the first growth, such as a wait for others to start, does not count. A count that falls, as
        of a learner that goes back to its checkpoint, begins again.
        """
        now = self._clock()
        if self._seen and (count < self._seen[-1][1] or (len(self._seen) == 1 and count == self._seen[0][1])):
            self._seen.clear()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._seconds:
            self._seen.popleft()
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else None


def table() -> str:
    """Return the list as docs/metrics.md shows it."""
    rows = [f"| `{metric.name}` | {metric.unit} | {metric.meaning} | {metric.kind} |" for metric in METRICS.values()]
    return "\n".join(["| name | unit | what | kind |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(table())
