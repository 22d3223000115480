"""The commands: ``flower-simulation`` and ``bfl``."""
