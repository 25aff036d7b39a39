"""Atari under SABER rules: environment, score protocol, training records and their plots. Knows nothing of agents."""
