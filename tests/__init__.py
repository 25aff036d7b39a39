"""The tests: a package of its own name, as opensimplex, which Crafter needs, installs another `tests`."""
