"""What is used of Flower and Ray outside their public modules: each part with what it must offer.

A new release of either fails here first; the message names the file of ours to change. What is
public may be used anywhere, everything else only in the files of ``DOORS``.
"""

from __future__ import annotations

import ast
import importlib
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from private_parts import PARTS, Part

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("bfl", "strategies", "clients", "benchmarks", "scripts", "tests")
DOORS = (
    *("bfl/engine/flower/", "bfl/engine/ray_cluster.py"),
    *("tests/engine/", "tests/deployment/"),
    # Measured beside ours, and no part of the product.
    "benchmarks/secure_aggregation.py",
)
PUBLIC = (
    *("flwr.app", "flwr.serverapp", "flwr.serverapp.strategy"),
    *("flwr.clientapp", "flwr.clientapp.mod"),
)
ATTRIBUTES = ("_message_id", "delivered_at", "message_ins_store", "_global_node", "all_processes")
"""Private attributes of objects that are public, or are had from a private part."""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.module}.{part.name}")
def test_each_private_part_is_what_it_was(part: Part) -> None:
    library = part.module.partition(".")[0]
    problem = part.problem()
    assert not problem, (
        f"{library} {version(library)}: {part.module}.{part.name} {problem}; change {part.file}"
    )


def _is_public(module: str, name: str) -> bool:
    library = module.partition(".")[0]
    if library == "ray":
        return not any(word.startswith("_") for word in f"{module}.{name}".split("."))
    if module not in PUBLIC or not name:
        return (module, name) == ("flwr.simulation", "run_simulation") or module in PUBLIC
    return name in importlib.import_module(module).__all__


def private_uses(text: str) -> set[tuple[str, str]]:
    """Return what a module's text uses of Flower and Ray that is not public.

    Imports of all kinds, paths of attributes (``flwr.a.b``), names of modules in strings, and the
    private attributes that ``ATTRIBUTES`` names: as pairs of a module and a name in it, one of
    which may be empty.
    """
    found = set()
    tree = ast.parse(text)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            if re.fullmatch(r"\w+(\.\w+)+", path) and id(node) not in inner:
                module, _, name = path.rpartition(".")
                found.add((module, name))
            if node.attr in ATTRIBUTES:
                found.add(("", node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(flwr|ray)(\.\w+)+", node.value):
                found.add((node.value, ""))
            if node.value in ATTRIBUTES:
                found.add(("", node.value))
    return {
        (module, name)
        for module, name in found
        if not module
        or (
            (re.match(r"(flwr|ray)(\.|$)", module) and (module, name) != ("flwr", ""))
            and not _is_public(module, name)
        )
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import flwr", set()),
        ("from flwr.app import Message", set()),
        ("from flwr.serverapp.strategy import FedAvg, Strategy", set()),
        ("from flwr.simulation import run_simulation", set()),
        ("import flwr_datasets.partitioner", set()),
        ("import ray\nray.get(1)", set()),
        ("from flwr.app import DEFAULT", {("flwr.app", "DEFAULT")}),
        ("from flwr.common.logger import log", {("flwr.common.logger", "log")}),
        ("def f():\n    import flwr.server.app as a", {("flwr.server.app", "")}),
        ("import flwr\nflwr.supercore.date.now()", {("flwr.supercore.date", "now")}),
        ("import sys\nsys.modules['flwr.superlink.grid']", {("flwr.superlink.grid", "")}),
        ("m.metadata.__dict__['_message_id'] = 1", {("", "_message_id")}),
        ("state.message_ins_store", {("", "message_ins_store")}),
        ("import ray\nray._private.worker", {("ray._private", "worker")}),
        ("from ray._private import worker", {("ray._private", "worker")}),
    ],
)
def test_every_way_of_using_a_private_part_is_found(text: str, found: set[tuple[str, str]]) -> None:
    assert private_uses(text) == found


def _modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.slow
def test_private_parts_are_used_behind_the_door_only() -> None:
    found = {
        (where, *use)
        for path in _modules()
        if not (where := path.relative_to(ROOT).as_posix()).startswith(DOORS)
        for use in private_uses(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_each_part_that_is_used_has_its_line_here() -> None:
    named = {(part.module, part.name) for part in PARTS}
    modules = {part.module for part in PARTS}
    offered = {name for part in PARTS for name in part.offers}
    for path in (p for p in _modules() if p.relative_to(ROOT).as_posix().startswith("bfl/engine")):
        for module, name in private_uses(path.read_text(encoding="utf-8")):
            known = (
                (module, name) in named
                or (not name and module in modules)
                or (not module and name in offered)
            )
            assert known, f"{path.name}: {module} {name}"
