"""Which agents may be run in lockstep, or without it, with so many actors."""

from rainbow_iqn_apex.options.agent_options import AgentOptions

_OPTION = "--synchronize-actors-with-learner"
_MOST_ACTORS = 4  # in lockstep


def lockstep_errors(agent: str, own: AgentOptions, nb_actor: int, *, lockstep: bool, force: bool) -> list[str]:
    """Return what is wrong with a run's lockstep, or its absence; `force` accepts what is possible and unwise."""
    takes_turns = own.MAX_POLICY_LAG == 0
    if takes_turns and not lockstep:
        return [f"{_OPTION}: --agent {agent} takes turns with its actors; leave the option out"]
    if force:
        return []
    if not lockstep and nb_actor == 1 and not own.WAITS_FOR_ROWS:
        return [
            f"{_OPTION}: a single actor that is not synchronised may be outrun by the learner, which then trains too "
            "often on too little; use more actors, or --force if this is meant"
        ]
    if lockstep and nb_actor > _MOST_ACTORS:
        free = "" if takes_turns else f"or {_OPTION} False, "
        return [
            f"{_OPTION}: {nb_actor} synchronised actors wait for the slowest of them and for the learner, round after "
            f"round; use at most {_MOST_ACTORS}, {free}or --force if this is meant"
        ]
    return []
