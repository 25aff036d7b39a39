"""Sweeps: many runs of the start script over games, agents, seeds and options, N at a time or as a Slurm array."""
