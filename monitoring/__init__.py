"""Shows what a run does: metrics of its processes, and the places that they are sent to."""
