"""Inference on a server: thin actors ask for actions, and a process with the network computes them for all."""
