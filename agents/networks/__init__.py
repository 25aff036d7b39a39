"""The networks of the agents, by family."""
