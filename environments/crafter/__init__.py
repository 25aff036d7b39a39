"""Crafter: a world to survive in, with 22 achievements (Hafner 2022, arXiv 2109.06780)."""
