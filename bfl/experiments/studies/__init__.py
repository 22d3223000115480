"""Studies: many runs from one file, and their tables and figures."""
