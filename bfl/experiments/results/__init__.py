"""Results of a run, and their presentation."""
