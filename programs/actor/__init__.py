"""The actor: its program and loop, and the rollout of its environments; and the evaluation actor."""
