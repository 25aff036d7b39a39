"""Which runs are of one agent, and what each agent is called.

Runs of one agent agree in all settings that take part in learning; games and seeds differ. Agents stand side by side
under the names of the command line, or else under those of their algorithm and preset.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rainbow_iqn_apex.saber.report.protocol import Protocols, protocols_of
from rainbow_iqn_apex.saber.report.runs import Run
from rainbow_iqn_apex.saber.report.settings import UNUSED, AgentOptions, agent_name, agree, format_value

_NAMED = 2  # differing settings in a name; the table of differences has all of them


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one agent, which is the same in all of them."""

    name: str  # no other agent of the report has it
    runs: Sequence[Run]
    settings: dict[str, Any]  # in which its runs agree, as far as they are recorded
    options: AgentOptions  # that agents are known to have

    @cached_property
    def protocols(self) -> Protocols:
        """The rules that its runs were played by."""
        return protocols_of(self.runs)


def group_runs(runs: Sequence[Run], options: AgentOptions | None = None) -> list[Group]:
    """Part the runs into agents, in the order of the command line; `options` are those that they may have."""
    known = options or {}
    clusters: list[_Cluster] = []
    for run in sorted(runs, key=lambda run: -len(run.comparable)):  # those with most settings decide what there is
        cluster = _place(run, [cluster for cluster in clusters if cluster.label == run.label])
        if cluster is None:
            clusters.append(cluster := _Cluster(run.label, {}, []))
        cluster.runs.append(run)
        cluster.settings |= run.comparable
    clusters.sort(key=lambda cluster: min((run.order, run.name) for run in cluster.runs))
    return [
        Group(name, sorted(cluster.runs, key=lambda run: (run.game, run.name)), cluster.settings, known)
        for name, cluster in zip(_names(clusters, known), clusters, strict=True)
    ]


@dataclass
class _Cluster:
    label: str | None
    settings: dict[str, Any]
    runs: list[Run]


def _place(run: Run, clusters: Sequence[_Cluster]) -> _Cluster | None:
    """Find the cluster of a run; None if there is none, or if too little is recorded to find it."""
    for cluster in clusters:
        if any(other.comparable == run.comparable for other in cluster.runs):
            return cluster
    fitting = [cluster for cluster in clusters if agree(cluster.settings, run.comparable)]
    return fitting[0] if len(fitting) == 1 else None


def _names(clusters: Sequence[_Cluster], options: AgentOptions) -> list[str]:
    """The label, or algorithm and preset; where these are the same, with settings that differ."""
    plain = [cluster.label or _default_name(cluster.runs) for cluster in clusters]
    named = []
    for name, cluster in zip(plain, clusters, strict=True):
        alike = [other.settings for other, theirs in zip(clusters, plain, strict=True) if theirs == name]
        telling = [setting for setting, values in _differing(alike, options).items() if UNUSED not in values]
        texts = [f"{setting} {format_value(setting, cluster.settings, options)}" for setting in telling]
        more = [f"and {len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
        named.append(f"{name} ({', '.join([*texts[:_NAMED], *more])})" if texts else name)
    seen = Counter(named)
    return [
        f"{name} #{1 + named[:number].count(name)}" if seen[name] > 1 else name for number, name in enumerate(named)
    ]


def _default_name(runs: Sequence[Run]) -> str:
    agents = {agent_name(run.settings) for run in runs} - {None}
    presets = {str(run.settings["preset"]) for run in runs if "preset" in run.settings}
    return ", ".join([*map(str, agents), *(presets if len(presets) == 1 else [])] or ["agent not recorded"])


def differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Settings in which agents differ, with the value of each agent."""
    return _differing([group.settings for group in groups], groups[0].options)


def _differing(settings: Sequence[dict[str, Any]], options: AgentOptions) -> dict[str, list[str]]:
    names = sorted({name for one in settings for name in one})
    values = {name: [format_value(name, one, options) for one in settings] for name in names}
    return {name: texts for name, texts in values.items() if len(set(texts)) > 1}
