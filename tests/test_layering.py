"""The arrows of the design: strategies -> bfl <- clients; numerics without Flower and Keras."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NUMERICS = (
    "posteriors",
    "aggregation/pooling",
    "aggregation/weightings",
    "data/partitions",
    "evaluation/metrics",
    "evaluation/uncertainty",
    "learning/priors",
)


def imported_modules(path: Path, *, at_import: bool) -> set[str]:
    """Return the modules that a file imports; at import time only, or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if at_import else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def top_level(path: Path, **how: bool) -> set[str]:
    return {name.split(".")[0] for name in imported_modules(path, **how)}


@pytest.mark.parametrize("path", sorted((ROOT / "bfl").rglob("*.py")), ids=lambda p: str(p.name))
def test_the_library_imports_neither_side(path: Path) -> None:
    assert not top_level(path, at_import=False) & {"strategies", "clients"}


@pytest.mark.parametrize("folder", ["strategies", "clients"])
def test_the_sides_do_not_import_each_other(folder: str) -> None:
    other = {"strategies", "clients"} - {folder}
    for path in (ROOT / folder).rglob("*.py"):
        assert not top_level(path, at_import=False) & other, path


@pytest.mark.parametrize("folder", NUMERICS)
def test_numerics_are_free_of_flower_and_keras(folder: str) -> None:
    paths = list((ROOT / "bfl" / folder).rglob("*.py"))
    assert paths
    for path in paths:
        assert not top_level(path, at_import=True) & {"flwr", "tensorflow", "tf_keras", "ray"}, path
        assert "bfl.keras" not in imported_modules(path, at_import=True), path


def test_only_one_module_imports_keras() -> None:
    for path in [p for f in ("bfl", "strategies", "clients") for p in (ROOT / f).rglob("*.py")]:
        names = imported_modules(path, at_import=False)
        if path != ROOT / "bfl" / "keras.py":
            assert not {n.split(".")[0] for n in names} & {
                "tensorflow",
                "tf_keras",
                "keras",
                "tensorflow_probability",
            }, path


def test_resolving_a_configuration_imports_no_tensorflow_and_no_flower() -> None:
    code = (
        "import sys; from bfl.configuration import resolve; resolve({});"
        "print([m for m in ('tensorflow', 'flwr', 'ray', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
