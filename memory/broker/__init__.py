"""Everything that talks to Redis: connections, keys and scripts, leases, and both ends of a run's transport."""
