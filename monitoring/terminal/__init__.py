"""What people see of a run in a terminal: a screen below the log lines, and `run_status.py`."""
