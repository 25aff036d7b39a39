"""The dashboard: a page in the browser about a run, live, from a process of its own that only reads."""
