"""Compiled twins of plain code, which is their oracle in tests; numba is loaded here alone."""
