"""Google Research Football, with either of two engines: envpool's, or gfootball's own."""
