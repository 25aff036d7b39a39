"""Rainbow, the agent of `--agent rainbow`."""
