"""Rules of the sources: their size in all, docstrings, imports, and nothing unused."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from strategies import strategy_classes

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("bfl", "strategies", "clients")
DOCUMENTED = (*PRODUCT, "scripts", "benchmarks")
FOLDERS = (*DOCUMENTED, "tests")
PRODUCT_LINES, PRODUCT_FILES, TEST_LINES = 39_998, 233, 36_000
"""At most: these numbers go down."""

MOST_NAMES = 35

HALF = {"What", "Whether", "Who", "Whose", "Which", "How", "That", "Those", "Of", "Where"}
HALF |= {"When", "If", "But", "So", "Such"}
"""Beginnings of half sentences: a docstring begins with an imperative, which ruff's D401 knows, or
with a noun phrase."""

FOR_HIERARCHIES = {"from_state"}
"""Of accumulators: a server that pools for another one sends what it has summed."""

Nodes = Iterable[ast.AST]


def first_words(nodes: Nodes) -> Iterator[str]:
    """Yield the first words of docstrings, those of constants among them."""
    for node in nodes:
        text = getattr(node.value, "value", None) if isinstance(node, ast.Expr) else None
        if isinstance(text, str) and text.strip():
            yield text.split()[0]


def imported(nodes: Nodes) -> Iterator[str]:
    """Yield the names that are imported; a module is one."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            future = getattr(node, "module", None) == "__future__"
            yield from (() if future else [each.name for each in node.names])


def definitions(nodes: Nodes) -> Iterator[str]:
    """Yield the names of functions, methods and classes that nothing but a name leads to."""
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        # Registries, pydantic and Flower find what they call by themselves.
        found = re.search(r"register|validator|override|\.(main|train|query)", decorators)
        if not (found or node.name.startswith("__")):
            yield node.name


READ = (first_words, imported, definitions)


def nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


@cache
def files() -> dict[str, dict[str, list]]:
    """Return what is read of every file, by its path; each is parsed once."""
    found = {}
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        nodes = nodes_of(path.read_text(encoding="utf-8"))
        found[path.relative_to(ROOT).as_posix()] = {r.__name__: list(r(nodes)) for r in READ}
    return found


def of(what: str, folders: Iterable[str]) -> Iterator[tuple[str, list]]:
    """Yield what is read of the files of some folders, with their paths."""
    return ((p, all_read[what]) for p, all_read in files().items() if p.split("/")[0] in folders)


def test_what_is_looked_for_is_found() -> None:
    """Lest the tests below look at nothing."""
    assert {path.split("/")[0] for path in files()} == set(FOLDERS)
    assert list(first_words(nodes_of('def f():\n    """One line."""'))) == ["One"]
    code = "from __future__ import annotations\nimport a, b\nfrom c import d as e"
    assert list(imported(nodes_of(code))) == ["a", "b", "d"]


def test_the_project_does_not_grow() -> None:
    lines = {path: len((ROOT / path).read_text("utf-8").splitlines()) for path in files()}
    product = [count for path, count in lines.items() if path.split("/")[0] in PRODUCT]
    tests = [count for path, count in lines.items() if path.startswith("tests/")]
    assert sum(product) <= PRODUCT_LINES
    assert len(product) <= PRODUCT_FILES
    assert sum(tests) <= TEST_LINES


def test_no_docstring_begins_as_a_half_sentence() -> None:
    found = {path: HALF.intersection(words) for path, words in of("first_words", DOCUMENTED)}
    assert {path: words for path, words in found.items() if words} == {}


def test_a_file_imports_few_names() -> None:
    assert not {path: len(each) for path, each in of("imported", PRODUCT) if len(each) > MOST_NAMES}


def called_by_flower() -> set[str]:
    """Return the methods that Flower's classes call."""
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

    return {*dir(Grid), *dir(Strategy), "set_run", "terminate"}


def test_every_function_and_class_is_used() -> None:
    """By the product, or what is written for its users; Strategies are found by their rules."""
    users = [p for folder in ("scripts", "benchmarks", "docs") for p in (ROOT / folder).rglob("*")]
    users = [p for p in users if p.suffix in {".py", ".sh", ".md"}]
    product = [ROOT / path for path, _ in of("definitions", PRODUCT)]
    texts = [p.read_text(encoding="utf-8") for p in (*product, *users, ROOT / "README.md")]
    times = Counter(word for text in texts for word in re.findall(r"\w+", text))
    called = called_by_flower() | set(strategy_classes()) | FOR_HIERARCHIES
    unused = [
        f"{path}: {name}"
        for path, names in of("definitions", PRODUCT)
        for name in names
        if times[name] < 2 and name not in called
    ]
    assert not unused, "only tests use these: " + ", ".join(unused)
