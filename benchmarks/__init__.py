"""Measurements, one command each; results, with machine and commit beside every number, in `results/`."""
