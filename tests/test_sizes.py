"""No file above 400 lines, no function above 60: of the product, its tests, scripts, benchmarks."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bfl", "strategies", "clients", "scripts", "benchmarks", "tests")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
"""Without its docstring, which says what it does."""


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a file with the number of their lines, but for docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            said = 0 if ast.get_docstring(node) is None else first.end_lineno - first.lineno + 1
            yield node.name, node.end_lineno - node.lineno + 1 - said


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


def test_all_folders_have_files_and_functions_are_measured() -> None:
    """Lest the test below looks at nothing."""
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(FOLDERS)
    assert dict(functions(EXAMPLE)) == {"function": 6}


def test_files_and_functions_can_be_seen_as_a_whole() -> None:
    found = []
    for path in FILES:
        source, where = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        if (lines := len(source.splitlines())) > MOST_LINES:
            found.append(f"{where}: {lines} lines")
        for name, lines in functions(source):
            if lines > MOST_LINES_OF_A_FUNCTION:
                found.append(f"{where}, {name}: {lines} lines")
    assert not found
