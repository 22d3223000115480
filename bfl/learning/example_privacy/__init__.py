"""How local training protects a client's single examples, one file each; see docs/privacy.md."""

from bfl.learning.example_privacy.base import (
    ExamplePrivacy,
    PrivateGradients,
    example_privacies,
)

__all__ = ["ExamplePrivacy", "PrivateGradients", "example_privacies"]
