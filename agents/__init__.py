"""What agents compute: networks, losses and policies. Nothing here knows of Redis, files or environments."""
