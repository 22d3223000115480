"""What one phase leaves to the next is a type, or raises a clear error: nobody asserts it.

Nor does anybody put it into another's object, which would be half-made until then.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bfl", "strategies", "clients")
OTHERS = {
    "strategies/messaging.py: message.metadata.ttl",
    "strategies/posterior_pooling.py: result.arrays",
    "clients/process.py: timer.daemon",
}
"""Attributes of Flower's and of Python's own objects that whoever uses them is to assign."""

OPEN = ("local", "opened", "request", "course", "client")
"""Names of rounds, and of what they ask, while they are made: options are there to change them. And
of what a Strategy and a client keep from round to round.
"""


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


def put_into_others(source: str) -> Iterator[str]:
    """Yield the attributes of objects other than ``self`` that a file assigns."""
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
            if stored and ast.unparse(part.value) != "self":
                yield ast.unparse(part)


def test_what_is_put_into_others_is_found() -> None:
    source = "self.x = y.a = 1\ny.b += self.c.d\nself.e.f, y.g[0] = z\ny.h: int = 2"
    assert sorted(put_into_others(source)) == ["self.e.f", "y.a", "y.b", "y.h"]


def test_nobody_puts_a_value_into_the_object_of_another() -> None:
    """It is there when the object is made, or comes as a return value."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("strategies", "clients")
        for path in (ROOT / folder).rglob("*.py")
        for name in put_into_others(path.read_text(encoding="utf-8"))
        if name.partition(".")[0] not in OPEN
    }
    assert found == OTHERS
