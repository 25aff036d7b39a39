"""Start a Redis server, the learner and the actors; watch them, and stop them together.

`start_learning_atari.sh` makes the environment and runs this package in it; installed, `apex-train` runs it in the
environment that it lies in. `program.py` has the loop.
"""
