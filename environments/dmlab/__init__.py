"""DeepMind Lab: labyrinths seen from within (Beattie et al. 2016, arXiv 1612.03801), and DMLab-30."""
