"""Pure functions on tensors, each with its paper; imports torch alone. Letters: T time, B batch, N quantiles."""
