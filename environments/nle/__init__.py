"""NLE: tasks in NetHack (Küttler et al. 2020, arXiv 2006.13760)."""
