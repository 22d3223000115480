"""What is used of Flower and Ray outside their public modules: that it is there, and where.

A new release of either fails here first; the message names what is gone. What is public may be used
anywhere, everything else only in the files of ``DOORS``.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from flwr.common.constant import ErrorCode
from flwr.server.superlink.fleet.vce import vce_api

from bfl.engine.flower import CLIENT_RAISED, NO_REPLY, hand_out

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


def part(path: str) -> Any:
    """Return what has a dotted path: a module, or what is in one."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ImportError:
        return getattr(part(module), name)


def test_flowers_codes_and_loop_are_what_ours_stand_for() -> None:
    assert (ErrorCode.UNKNOWN, ErrorCode.CLIENT_APP_RAISED_EXCEPTION) == (NO_REPLY, CLIENT_RAISED)
    theirs = inspect.signature(vce_api.add_messages_to_queue)
    assert list(theirs.parameters) == list(inspect.signature(hand_out).parameters)


def private_uses(text: str) -> set[tuple[str, str]]:
    """Return what a module uses of Flower and Ray that is not public, as (module, name)."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(flwr|ray)(\.\w+)+", node.value):
                found.add((node.value, ""))  # a module that is imported, or looked for, by its name
            if node.value in ATTRIBUTES:
                found.add(("", node.value))
        elif isinstance(node, ast.Attribute):
            module, _, name = ast.unparse(node).rpartition(".")
            if re.fullmatch(r"flwr(\.\w+)+|ray(\.\w+)*\._\w+", module):
                found.add((module, name))
            if node.attr in ATTRIBUTES:
                found.add(("", node.attr))
    return {(module, name) for module, name in found if _is_private(module, name)}


def _is_private(module: str, name: str) -> bool:
    if not module:
        return True
    if module in PUBLIC:
        return bool(name) and name not in importlib.import_module(module).__all__
    if re.match(r"ray(\.|$)", module):
        return "._" in f"{module}.{name}"
    known = {("flwr", ""), ("flwr.simulation", "run_simulation")}
    return bool(re.match(r"flwr(\.|$)", module)) and (module, name) not in known


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


def test_all_that_is_used_is_there() -> None:
    for path in (p for p in _modules() if p.relative_to(ROOT).as_posix().startswith("bfl/engine")):
        for module, name in private_uses(path.read_text(encoding="utf-8")):
            if module:
                part(f"{module}.{name}".rstrip("."))
