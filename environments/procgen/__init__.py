"""Procgen: sixteen games whose levels are drawn (Cobbe et al. 2020, arXiv 1912.01588)."""
