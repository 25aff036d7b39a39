"""The experience path: rows, chunks, wire format, Redis log, replay. Knows nothing of agents or of Atari."""

if __name__ != "rainbow_iqn_apex.memory":
    raise ImportError("import rainbow_iqn_apex.memory: under the name memory every class would exist twice")
