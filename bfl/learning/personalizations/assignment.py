"""Which client has a personal model of which architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bfl.errors import ConfigurationError
from bfl.federation.assignment import assigned
from bfl.learning.models import create_architecture

_ENTRY = re.compile(r"([a-z][a-z0-9_-]*)\s*(?::\s*([0-9]+))?")
_GRAMMAR = (
    "a model's word, or several with numbers of clients, as in 'mlp:2,lenet5:2,cnn2:6'; the last "
    "one may have no number, for all clients that are left"
)


@dataclass(frozen=True)
class Assignment:
    """Architectures by number of clients, in the order of partition ids.

    Attributes:
        models: Words, each with its number of clients; None: all that are left. Empty: all clients
            have the federation's own.
    """

    models: tuple[tuple[str, int | None], ...]

    @classmethod
    def parse(cls, text: str) -> Assignment:
        """Return what a text such as ``mlp:2,lenet5:2,cnn1:3,cnn2:3`` says.

        Raises:
            ConfigurationError: It is no such text, or names a model that there is not.
        """
        models: list[tuple[str, int | None]] = []
        for entry in text.split(",") if text.strip() else ():
            match = _ENTRY.fullmatch(entry.strip().lower())
            if not match or (match[2] is not None and int(match[2]) < 1):
                raise ConfigurationError(f"personal-models is '{text}'; allowed: {_GRAMMAR}")
            create_architecture(match[1])
            models.append((match[1], int(match[2]) if match[2] else None))
        if any(count is None for _, count in models[:-1]):
            raise ConfigurationError(f"personal-models is '{text}'; allowed: {_GRAMMAR}")
        return cls(tuple(models))

    def words(self, clients: int) -> tuple[str, ...]:
        """Return the model's word of each client; empty where it is the federation's own.

        Args:
            clients: The number of clients.

        Raises:
            ConfigurationError: The numbers are not those of the clients.
        """
        if not self.models:
            return ("",) * clients
        return tuple(self.models[k][0] for k in assigned(self.models, clients, "personal-models"))
