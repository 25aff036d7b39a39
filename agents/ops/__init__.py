"""Pure functions on tensors, each with its paper; imports torch alone. Letters: T time, B batch, N quantiles.

A `step_type` tensor holds the place of each row in its episode as uint8: the values of `memory.rows.StepType`, which
this package repeats because it imports nothing but torch. Functions raise ValueError if the shapes of their arguments
do not fit (`shapes.check_shapes`).
"""

FIRST = 0
MID = 1
LAST = 2
