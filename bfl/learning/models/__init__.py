"""Model architectures, built with the layers of any inference."""

from bfl.learning.models.base import Architecture, architectures

__all__ = ["Architecture", "architectures"]
