"""Tables of TOML whose keys are declared once, and refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pydantic
import tomli_w

from bfl.configuration.messages import refused_values
from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError, unknown_name
from bfl.files import write_atomically
from bfl.registry import STRICT, kebab


class Table(pydantic.BaseModel):
    """A table of TOML; its fields are the keys, in kebab case."""

    model_config = STRICT

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys that the table may have."""
        return tuple(field.alias or kebab(name) for name, field in cls.model_fields.items())

    @classmethod
    def parse(cls, given: Mapping[str, Any], where: str) -> Self:
        """Return the table of given values.

        Raises:
            ConfigurationError: A key is unknown or missing, or a value is wrong.
        """
        try:
            known = cls.keys()
            for key in given:
                if cls.model_config["extra"] == "forbid" and key not in known:
                    raise ConfigurationError(unknown_name("key", key, known))
            return cls.model_validate(dict(given))
        except pydantic.ValidationError as error:
            raise ConfigurationError(f"{where}: {'; '.join(refused_values(error))}") from error
        except ConfigurationError as error:
            error.args = (f"{where}: {error}",)
            raise

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the table in a file.

        Raises:
            ConfigurationError: It cannot be read, a key is unknown or missing, or a value is wrong.
        """
        return cls.parse(read_toml(path), str(path))

    def write(self, path: Path, header: str = "") -> None:
        """Write the table as TOML, without what is empty."""
        told = {k: v for k, v in self.model_dump(by_alias=True).items() if v or v == 0}
        text = tomli_w.dumps(told, multiline_strings=False)
        write_atomically(path, (header + text).encode())
