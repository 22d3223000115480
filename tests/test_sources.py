"""Rules of every source file: its size, its docstrings, clear phases, and nothing unused.

What one phase leaves to the next is a type, or raises a clear error: nobody asserts it. Nor does
anybody put it into another's object, which would be half-made until then.
"""

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
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
"""Without its docstring, which says what it does."""

HALF = {"What", "Whether", "Who", "Whose", "Which", "How", "That", "Those", "Of", "Where"}
HALF |= {"When", "If", "But", "So", "Such"}
"""Beginnings of half sentences: a docstring begins with an imperative, which ruff's D401 knows, or
with a noun phrase."""

OTHERS = {
    "strategies/messaging.py: message.metadata.ttl",
    "strategies/posterior_pooling.py: result.arrays",
    "clients/process.py: timer.daemon",
}
"""Attributes of Flower's and of Python's own objects that whoever uses them is to assign."""

OPEN = ("local", "opened", "request", "course", "client", "usable")
"""Names of rounds, and of what they ask, while they are made: options are there to change them. And
of what a Strategy and a client keep from round to round, and of counts of replies.
"""

FOR_HIERARCHIES = {"from_state"}
"""Of accumulators: a server that pools for another one sends what it has summed."""

Nodes = Iterable[ast.AST]


def functions(nodes: Nodes) -> Iterator[tuple[str, int]]:
    """Yield functions with the number of their lines, but for docstrings."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            said = 0 if ast.get_docstring(node) is None else first.end_lineno - first.lineno + 1
            yield node.name, node.end_lineno - node.lineno + 1 - said


def first_words(nodes: Nodes) -> Iterator[str]:
    """Yield the first words of docstrings, those of constants among them."""
    for node in nodes:
        text = getattr(node.value, "value", None) if isinstance(node, ast.Expr) else None
        if isinstance(text, str) and text.strip():
            yield text.split()[0]


def asserted(nodes: Nodes) -> Iterator[int]:
    """Yield the lines that assert that something is not None."""
    for node in nodes:
        for part in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            if isinstance(part, ast.Compare) and any(
                isinstance(op, ast.IsNot) and ast.unparse(right) == "None"
                for op, right in zip(part.ops, part.comparators, strict=True)
            ):
                yield node.lineno


def put_into_others(nodes: Nodes) -> Iterator[str]:
    """Yield the attributes of objects other than ``self`` that are assigned."""
    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
            if stored and ast.unparse(part.value) != "self":
                yield ast.unparse(part)


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


READ = (functions, first_words, asserted, put_into_others, definitions)


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


EXAMPLE = '''
def function(
    argument
):
    """One line.

    And more.
    """
    doubled = 2 * argument

    return doubled
'''


def test_what_is_looked_for_is_found() -> None:
    """Lest the tests below look at nothing."""
    assert {path.split("/")[0] for path in files()} == set(FOLDERS)
    assert dict(functions(nodes_of(EXAMPLE))) == {"function": 6}
    assert list(first_words(nodes_of(EXAMPLE))) == ["One"]
    code = "x = f()\nassert x is not None\nassert x and y is not None, 'told'"
    assert list(asserted(nodes_of(code))) == [2, 3]
    assert not list(asserted(nodes_of("assert x\nif x is not None:\n    pass")))
    code = "self.x = y.a = 1\ny.b += self.c.d\nself.e.f, y.g[0] = z\ny.h: int = 2"
    assert sorted(put_into_others(nodes_of(code))) == ["self.e.f", "y.a", "y.b", "y.h"]


def test_files_and_functions_can_be_seen_as_a_whole() -> None:
    found = []
    for path, measured in of("functions", FOLDERS):
        if (lines := len((ROOT / path).read_text("utf-8").splitlines())) > MOST_LINES:
            found.append(f"{path}: {lines} lines")
        found += [f"{path}, {n}: {k} lines" for n, k in measured if k > MOST_LINES_OF_A_FUNCTION]
    assert not found


def test_no_docstring_begins_as_a_half_sentence() -> None:
    found = {path: HALF.intersection(words) for path, words in of("first_words", DOCUMENTED)}
    assert {path: words for path, words in found.items() if words} == {}


def test_nothing_asserts_that_another_phase_has_been() -> None:
    assert not [f"{path}:{line}" for path, lines in of("asserted", PRODUCT) for line in lines]


def test_nobody_puts_a_value_into_the_object_of_another() -> None:
    """It is there when the object is made, or comes as a return value."""
    found = {
        f"{path}: {name}"
        for path, names in of("put_into_others", ("strategies", "clients"))
        for name in names
        if name.partition(".")[0] not in OPEN
    }
    assert found == OTHERS


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
