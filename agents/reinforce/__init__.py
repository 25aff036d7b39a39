"""REINFORCE with a baseline: the example of docs/agents.md."""
