"""The arrows of the design: strategies -> bfl <- clients; one door to Keras.

Within ``bfl`` they go one way as well: a chapter imports itself and those above it in ``CHAPTERS``.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = (
    "bfl",
    "bfl.errors",
    "bfl.files",
    "bfl.texts",
    "bfl.randomness",
    "bfl.archives",
    "bfl.printing",
    "bfl.keras",
    "bfl.registry",
    "bfl.plugins",
    "bfl.posteriors",
    "bfl.aggregation",
    "bfl.federation",
    "bfl.data",
    "bfl.learning",
    "bfl.evaluation",
    "bfl.closing",
    "bfl.presets",
    # What a run leaves behind knows nothing of configurations, which pick figures.
    "bfl.experiments",
    "bfl.experiments.results",
    "bfl.configuration",
    "bfl.engine",
    "bfl.deployment",
    "bfl.experiments.run",
    "bfl.experiments.studies",
    "bfl.api",
    "bfl.commands",
    "clients",
    "strategies",
    "strategies.application",
)
"""Each may import those before it, and no other."""

DOOR = ("bfl", "bfl.api")
"""The package gives ``bfl.run`` and ``bfl.load`` when it is asked for them."""


def modules() -> dict[str, Path]:
    """Return the files of bfl, strategies and clients by the names of their modules."""
    found = {}
    for path in (p for f in ("bfl", "strategies", "clients") for p in (ROOT / f).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(tree: ast.Module, *, lazy: bool) -> Iterator[ast.AST]:
    """Yield what is run when a module is imported and, if asked for, what its functions run."""
    left: list[ast.AST] = list(tree.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            left.extend(node.orelse)
        elif lazy or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            left.extend(ast.iter_child_nodes(node))


@cache
def imports(*, lazy: bool) -> dict[str, set[str]]:
    """Return which modules of the project each one imports; at import, with their packages."""
    files = modules()
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        found: set[str] = set()
        for node in statements(ast.parse(path.read_text(encoding="utf-8")), lazy=lazy):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: a relative import"
                names = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                # Of a package's own names, the package; of its modules, the modules.
                found |= names or {str(node.module)}
                if len(names) < len(node.names):
                    found.add(str(node.module))
        for name in () if lazy else tuple(found & files.keys()):
            parts = name.split(".")
            around = {".".join(parts[:length]) for length in range(1, len(parts))}
            # A module's own packages are there already when it is imported.
            found |= {p for p in around if not f"{module}.".startswith(f"{p}.")}
        graph[module] = (found & files.keys()) - {module}
    return graph


def chapter(module: str) -> str:
    """Return the chapter that a module belongs to."""
    inside = [c for c in CHAPTERS if f"{module}.".startswith(f"{c}.")]
    found = max(inside, key=len)
    # What is neither a chapter nor in one must get a place in the list.
    assert found == module or found not in ("bfl", "bfl.experiments"), f"{module} has no chapter"
    return found


@pytest.mark.parametrize("lazy", [False, True], ids=["at import", "ever"])
def test_chapters_import_only_those_above_them(lazy: bool) -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in imports(lazy=lazy).items()
        for other in others
        if (
            CHAPTERS.index(chapter(other)) > CHAPTERS.index(chapter(module))
            and (module, other) != DOOR
        )
        or {module.split(".")[0], other.split(".")[0]} == {"strategies", "clients"}
    ]
    assert not wrong


@pytest.mark.parametrize("lazy", [False, True], ids=["at import", "ever"])
def test_no_modules_import_each_other_in_a_circle(lazy: bool) -> None:
    graph = imports(lazy=lazy)
    if lazy:
        graph = {**graph, DOOR[0]: graph[DOOR[0]] - {DOOR[1]}}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_every_chapter_is_there_and_imports_are_found() -> None:
    """Lest the tests above look at nothing."""
    assert {chapter(module) for module in modules()} == set(CHAPTERS)
    graph, lazily = imports(lazy=False), imports(lazy=True)
    assert "bfl.registry" in graph["bfl.aggregation.pooling.base"]
    assert (
        "bfl.keras"
        in lazily["strategies.application.evaluation"] - graph["strategies.application.evaluation"]
    )
    assert sum(map(len, graph.values())) > 1000


def test_the_library_looks_up_no_module_of_either_side_by_name() -> None:
    """The ServerApp and the ClientApp are loaded as pyproject.toml names them."""
    found = [
        f"{path}: {ast.unparse(node)}"
        for path in (ROOT / "bfl").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")
        if any(side in ast.unparse(node.args[0]) for side in ("strategies", "clients"))
    ]
    assert not found


def test_only_one_module_imports_keras() -> None:
    for path in [p for f in ("bfl", "strategies", "clients") for p in (ROOT / f).rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        named = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
        named += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module]
        tops = {name.split(".")[0] for name in named}
        keras = {"tensorflow", "tf_keras", "keras", "tensorflow_probability"}
        assert path == ROOT / "bfl" / "keras.py" or not tops & keras, path


def test_test_files_have_names_of_their_own() -> None:
    """They lie in folders that are no packages: pytest takes one file of each name."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted(set(names)) == sorted(names)
