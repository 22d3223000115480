"""Nothing in the product that only tests call."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from strategies import strategy_classes

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = [p for folder in ("bfl", "strategies", "clients") for p in (ROOT / folder).rglob("*.py")]
USERS = [p for folder in ("scripts", "benchmarks", "docs") for p in (ROOT / folder).rglob("*")]
FOR_HIERARCHIES = {"from_state"}
"""Of accumulators: a server that pools for another one sends what it has summed."""


def definitions() -> Iterator[tuple[str, Path]]:
    """Yield the names of functions, methods and classes that nothing but a name leads to."""
    for path in PRODUCT:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            # Registries, pydantic and Flower find what they call by themselves.
            found = re.search(r"register|validator|override|\.(main|train|query)", decorators)
            if not (found or node.name.startswith("__")):
                yield node.name, path


def inherited() -> set[str]:
    """Return the methods that Flower's classes call."""
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

    return {*dir(Grid), *dir(Strategy), "set_run", "terminate"}


def found_by_their_rule() -> set[str]:
    """Return the Strategies that ``strategies`` finds by the name of their rule."""
    return set(strategy_classes())


def test_every_function_and_class_is_used() -> None:
    texts = [p.read_text(encoding="utf-8") for p in (*PRODUCT, ROOT / "README.md")]
    texts += [p.read_text(encoding="utf-8") for p in USERS if p.suffix in {".py", ".sh", ".md"}]
    times = Counter(word for text in texts for word in re.findall(r"\w+", text))
    called = inherited() | found_by_their_rule() | FOR_HIERARCHIES
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for name, path in definitions()
        if times[name] < 2 and name not in called
    ]
    assert not unused, "only tests use these: " + ", ".join(unused)
