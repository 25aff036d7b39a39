"""PQN: Q-learning on rounds, without replay and without target network."""
