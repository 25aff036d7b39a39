"""Environments of Gymnasium, MuJoCo and the DeepMind Control Suite."""
