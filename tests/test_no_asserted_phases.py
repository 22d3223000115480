"""What one phase leaves to the next is a type, or raises a clear error: nobody asserts it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bfl", "strategies", "clients")


def asserted(source: str) -> Iterator[int]:
    """Yield the lines of a file that assert that something is not None."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare) and any(
                    isinstance(op, ast.IsNot) and ast.unparse(right) == "None"
                    for op, right in zip(part.ops, part.comparators, strict=True)
                ):
                    yield node.lineno


def test_such_an_assertion_is_found() -> None:
    assert list(asserted("x = f()\nassert x is not None\nassert x and y is not None, 'told'")) == [
        2,
        3,
    ]
    assert not list(asserted("assert x\nif x is not None:\n    pass"))


def test_nothing_asserts_that_another_phase_has_been() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert {path.relative_to(ROOT).parts[0] for path in files} == set(FOLDERS)
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        for line in asserted(path.read_text(encoding="utf-8"))
    ]
    assert not found
