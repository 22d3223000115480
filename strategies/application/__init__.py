"""The application: a run from its configuration to its folder, around a Strategy."""
