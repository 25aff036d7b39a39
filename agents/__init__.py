"""Agents, their networks and mathematics, and the actor and learner loops."""
