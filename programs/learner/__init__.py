"""The learner: its program, its loop, its results folder and its checkpoints."""
