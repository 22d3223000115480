"""Single examples are not protected."""

from __future__ import annotations

from bfl.learning.example_privacy.base import ExamplePrivacy, example_privacies


@example_privacies.register("none")
class NoExamplePrivacy(ExamplePrivacy):
    """Training as it is, on shuffled batches."""
