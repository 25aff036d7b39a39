"""Agents, their networks and mathematics, and the actor and learner loops."""

import os

# Idle OpenMP threads must sleep: spinning, they take the cores from the actors beside them, and a small update of the
# learner was measured to take 113 ms instead of 8. It is read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
