"""Places that a run's metrics are sent to, see `monitoring.sinks.sink`."""
