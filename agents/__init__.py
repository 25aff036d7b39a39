"""What agents compute: networks, losses and policies. Nothing here uses Redis, files or environments."""
