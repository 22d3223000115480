"""Model architectures, built with the layers of any inference."""

from bfl.learning.models.base import Architecture, architectures, create_architecture

__all__ = ["Architecture", "architectures", "create_architecture"]
