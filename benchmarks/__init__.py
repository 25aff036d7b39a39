"""Measurements, one command each; results, with machine and commit beside every number, in `results/`."""

from rainbow_iqn_apex import agents  # noqa: F401 - before torch, for which it sets the environment
