"""The evaluation of snapshots, in one process or in several."""
