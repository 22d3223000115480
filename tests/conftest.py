"""For all tests: few threads, nothing sent anywhere, and TensorFlow only for those that ask."""

import gc
import io
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from bfl import plugins
from bfl.registry import Component, Registry

os.environ["BFL_CPUS"] = "1"
# No example of a property has a time limit: other tests run beside it.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

# Where a shell starts the tests in the background, they and what they start would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--part``."""
    parser.addoption(
        "--part",
        metavar="KEY:NAME",
        action="append",
        help="only the tests that concern a part, such as strategy:conflation; repeatable",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For long tests alone, import no file without one: every process would import all of them."""
    long_alone = re.fullmatch(r"long( and (?!.*\bor\b).*)?", config.option.markexpr)
    if not long_alone or collection_path.suffix != ".py" or collection_path.name == "conftest.py":
        return None
    return "mark.long" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the slow tests, so that no process waits at the end for another's last file."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if item.get_closest_marker("alone") and not item.get_closest_marker("long"):
            raise pytest.UsageError(f"{item.nodeid} is marked alone, which only long tests can be")
    if parts := [_part(words) for words in config.getoption("--part") or ()]:
        chosen = [item for item in items if any(_concerns(item, *part) for part in parts)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def _part(words: str) -> tuple[str, type[Component]]:
    """Return the key and the class of the part that ``--part`` names."""
    from bfl.configuration.component_slots import REGISTRIES
    from bfl.data.datasets import dataset_sources
    from bfl.errors import ConfigurationError, unknown_name

    registries = {registry.kind: registry for registry in (*REGISTRIES, dataset_sources)}
    kind, _, name = words.partition(":")
    # A pooling rule's name is a strategy as well.
    if kind == "strategy" and name in registries["pooling"]:
        kind = "pooling"
    if kind not in registries:
        raise pytest.UsageError(f"--part: {unknown_name('key', kind, registries)}")
    try:
        return kind, registries[kind].get(name)
    except ConfigurationError as error:
        raise pytest.UsageError(f"--part: {error}") from error


def _concerns(item: pytest.Item, kind: str, component: type[Component]) -> bool:
    """Return whether a test takes a part, its registry or values that pick it as a parameter, or is
    its own file.
    """
    if item.path.stem.endswith(component.__module__.rpartition(".")[2]):
        return True
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(
        value is component
        or isinstance(value, component)
        or (isinstance(value, str) and value == component.name)
        or (isinstance(value, dict) and value.get(kind) == component.name)
        or (isinstance(value, Registry) and value.kind == kind)
        for value in values
    )


@pytest.fixture(autouse=True)
def forgets_plugins() -> Iterator[None]:
    """Unload the plugins that a test has loaded: a process keeps them otherwise."""
    yield
    for plugin in list(plugins._loaded.values()):
        plugins._unload(plugin)


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Leave what there is out of garbage collections: with TensorFlow's each takes a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def undrawn_figures() -> Iterator[None]:
    """For tests of other things than figures: runs compose theirs, but Matplotlib does not lay them
    out and draw them, which takes three seconds a run; their files hold one pixel.
    """
    from matplotlib.figure import Figure
    from PIL import Image

    from bfl.experiments.results import (
        figures,
        report,  # noqa: F401 (it keeps the function that draws)
    )

    pixel = io.BytesIO()
    Image.new("RGB", (1, 1)).save(pixel, "png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "draw_without_rendering", lambda figure: None)
        patch.setattr(figures, "png", lambda figure: pixel.getvalue())
        yield


@pytest.fixture(scope="session")
def tensorflow() -> Any:
    """Return TensorFlow, configured; a test that uses it imports what needs it in its body."""
    from bfl.keras import configure, tf

    configure(1)
    return tf
