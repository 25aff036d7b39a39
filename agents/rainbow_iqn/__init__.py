"""Rainbow-IQN, the agent of `--agent rainbow_iqn`."""
