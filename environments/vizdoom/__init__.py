"""Environments of VizDoom (farama.org): --env vizdoom:basic."""
