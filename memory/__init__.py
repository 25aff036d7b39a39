"""The experience path: rows, chunks, wire format, Redis log, replay. Knows nothing of agents or of Atari."""
