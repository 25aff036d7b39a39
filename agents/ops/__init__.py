"""Pure functions on tensors, each with its paper; imports torch alone. Letters: T time, B batch, N quantiles.

A `kind` tensor holds the place of each row in its episode as uint8: the values of `memory.rows.Kind`, repeated here
because this package imports nothing but torch.
"""

FIRST = 0
MID = 1
LAST = 2
