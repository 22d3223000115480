"""Defences: what is done to clients' posteriors before any rule pools them; one file each."""

from bfl.aggregation.defences.base import Defence, defences

__all__ = ["Defence", "defences"]
