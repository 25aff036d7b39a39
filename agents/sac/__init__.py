"""SAC: an actor-critic that learns off-policy, for the largest return and entropy."""
