"""Docstrings begin with an imperative or a noun phrase; ruff's D401 knows the imperatives."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ("bfl", "clients", "strategies", "scripts", "benchmarks")
HALF = {"What", "Whether", "Who", "Whose", "Which", "How", "That", "Those", "Of", "Where"}
HALF |= {"When", "If", "But", "So", "Such"}


def first_words(path: Path) -> set[str]:
    """Return the first words of a file's docstrings, those of constants among them."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    values = [n.value.value for n in nodes if isinstance(n, ast.Expr) if hasattr(n.value, "value")]
    return {text.split()[0] for text in values if isinstance(text, str) and text.strip()}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_docstring_begins_as_a_half_sentence(chapter: str) -> None:
    found = {str(p): first_words(p) & HALF for p in (ROOT / chapter).rglob("*.py")}
    assert {path: words for path, words in found.items() if words} == {}
