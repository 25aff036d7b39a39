"""What actors play: an interface, a registry, and a folder for each library of environments."""
