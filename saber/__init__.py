"""Atari under SABER rules: environment, score protocol, training records and their plots. Knows nothing of agents."""

if __name__ != "rainbow_iqn_apex.saber":
    raise ImportError("import rainbow_iqn_apex.saber: under the name saber every class would exist twice")
