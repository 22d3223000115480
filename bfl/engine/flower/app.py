"""A Flower app as its pyproject.toml describes it; it runs in this process, without Ray."""

from __future__ import annotations

import logging
import pkgutil
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bfl.configuration import unset_values
from bfl.configuration.settings import format_pairs, parse_pairs, unknown_key
from bfl.configuration.sources import flatten, read_toml
from bfl.engine.flower import new_context, new_run
from bfl.engine.processes import cpus_of_this_process, environment_with
from bfl.engine.run import EngineRun
from bfl.errors import ConfigurationError
from bfl.plugins import load_plugins, named_plugins

Values = dict[str, str | int | float | bool]

OWN_SERVER = "strategies.application.run:app"
"""The ServerApp by which this project's own app is known."""

SETTINGS = "plugin-settings"
"""The key whose text has the settings of user-defined parts, which Flower does not know."""


@dataclass(frozen=True)
class FlowerApp:
    """A Flower app.

    Attributes:
        server: The ServerApp as ``module:attribute``.
        client: The ClientApp as ``module:attribute``.
        defaults: All keys with their defaults, flat: those that it declares and, for this project's
            own app, those of parts that its pyproject.toml does not know.
        declared: The keys that it declares, which alone ``flwr run`` takes.
    """

    folder: Path
    server: str
    client: str
    defaults: Values
    declared: Values = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> FlowerApp:
        """Return the app in a folder."""
        path = folder / "pyproject.toml"
        read = read_toml(path) if path.is_file() else {}
        table = read.get("tool", {}).get("flwr", {}).get("app", {})
        components = table.get("components", {})
        if not {"serverapp", "clientapp"} <= components.keys():
            missing = "pyproject.toml with [tool.flwr.app.components], serverapp and clientapp"
            raise ConfigurationError(
                f"--app {folder}: it has no {missing}; without --app: bfl's own"
            )
        server, client = components["serverapp"], components["clientapp"]
        declared = flatten(table.get("config", {}))
        unset = unset_values() if server == OWN_SERVER else {}
        return cls(folder.resolve(), server, client, {**unset, **declared}, declared)

    @classmethod
    def own(cls) -> FlowerApp:
        """Return this project's app, from a checkout or as it is installed."""
        return cls.read(own_folder())

    def run_config(self, overrides: Mapping[str, Any]) -> Values:
        """Return the run configuration: the app's defaults with some values overridden."""
        if self.server == OWN_SERVER:  # ``resolve`` refuses keys that are none, with all else
            # User-defined parts bring keys of their own.
            load_plugins(named_plugins(overrides))
            return {**unset_values(), **self.defaults, **overrides}
        for key in overrides:
            if key not in self.defaults:
                declared = f"[tool.flwr.app.config] of {self.folder / 'pyproject.toml'}"
                raise ConfigurationError(
                    f"{unknown_key(key, self.defaults)} (declared: {declared})"
                )
        return {**self.defaults, **overrides}

    def for_flwr_run(self, overrides: Mapping[str, Any]) -> Values:
        """Return overrides that Flower itself takes: keys that it does not know go into a text."""
        undeclared = {k: v for k, v in overrides.items() if k not in self.declared}
        taken = {k: v for k, v in overrides.items() if k in self.declared}
        if undeclared:
            text = str(taken.get(SETTINGS, ""))
            taken[SETTINGS] = format_pairs({**parse_pairs(text), **undeclared})
        return taken

    def load(self, name: str) -> Any:
        """Return the app of a name, ``server`` or ``client``: the library imports no server.

        This project's own ServerApp has ``check_before_start``.
        """
        self._make_importable()
        try:
            return pkgutil.resolve_name(name)
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(f"--app {self.folder}: {name}: {error}") from error

    def _make_importable(self) -> None:
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))

    def prepare(self, verbose: bool) -> None:
        """Make the app's packages importable here, hence in actors, and set Flower's log level."""
        self._make_importable()
        # Failures are reported by the strategy, with the client and the round, and once.
        level = logging.DEBUG if verbose else logging.CRITICAL
        for handler in logging.getLogger("flwr").handlers:
            handler.setLevel(level)
        logging.getLogger("ray").setLevel(level)


def own_folder() -> Path:
    """Return the folder with this project's pyproject.toml: the wheel has a copy of it."""
    package = Path(__file__).resolve().parent.parent.parent
    packaged = package / "app"
    return packaged if (packaged / "pyproject.toml").is_file() else package.parent


@contextmanager
def bundled(folder: Path) -> Iterator[Path]:
    """Give the folder of which Flower makes a bundle: an installed app's code is beside it."""
    package = folder.parent
    if folder.name != "app" or not (package / "__init__.py").is_file():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bfl-app-") as scratch:
        app = Path(scratch) / "bfl"
        shutil.copytree(folder, app)
        ignored = shutil.ignore_patterns("__pycache__", "app")
        for name in ("bfl", "strategies", "clients"):
            shutil.copytree(package.parent / name, app / name, ignore=ignored)
        yield app


def client_resources(backend_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an actor gets: one CPU unless said otherwise."""
    return {"num_cpus": 1, "num_gpus": 0.0, **backend_config.get("client_resources", {})}


def run_serially(
    app: FlowerApp,
    overrides: Mapping[str, Any],
    num_supernodes: int,
    backend_config: Mapping[str, Any],
    engine_run: EngineRun | None = None,
) -> None:
    """Run an app in this process, one client after the other, without Ray.

    The process computes with as many CPUs as one Ray actor would, so the results are the same. One
    that has already computed with others keeps them, with a warning.

    Args:
        overrides: Values that differ from the app's defaults.
        backend_config: As for ``RayEngine``; only the number of CPUs of a client counts.
    """
    from bfl.engine.serial import SerialGrid
    from bfl.keras import configured_threads

    app.prepare(verbose=False)
    with environment_with({"BFL_CPUS": str(client_resources(backend_config)["num_cpus"])}):
        values = app.run_config(overrides)
        run = new_run(overrides)
        client_app, server_app = app.load(app.client), app.load(app.server)
        engine_run = engine_run or EngineRun()
        wanted = engine_run.client_threads = cpus_of_this_process()
        if (threads := configured_threads()) not in (None, wanted):
            warnings.warn(
                f"a client has {wanted} CPUs on this backend, and TensorFlow keeps the {threads} "
                "threads that it has in this process: the last digits may differ. For the same "
                f"bits, run in a new process, or with num_cpus {threads} in client_resources",
                stacklevel=2,
            )
        grid = SerialGrid(client_app, num_supernodes, run, values, engine_run)
        with engine_run.in_progress():
            server_app(grid=grid, context=new_context(run.run_id, values))
