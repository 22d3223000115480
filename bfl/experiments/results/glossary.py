"""Glossary of a run's numbers, from the docstrings of metrics and uncertainties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from bfl.evaluation.metrics import metrics
from bfl.evaluation.metrics.base import Metric
from bfl.evaluation.uncertainty import uncertainties
from bfl.registry import Component

TEMPLATE = Path(__file__).with_name("glossary.md")
"""The page's own text, in which the entries and the keys are put."""


_SOURCE = re.compile(r"^(?:Reference|Source)s?:\s*")


def glossary_page(keys: Mapping[str, str]) -> str:
    """Return the page ``docs/glossary.md``."""
    parts = ["## Metrics\n", *map(glossary_entry, metrics.classes())]
    parts += ["## Uncertainties\n", *map(glossary_entry, uncertainties.classes())]
    rows = "\n".join(f"| `{key}` | {keys[key]} |" for key in sorted(keys))
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace("{metrics and uncertainties}", "\n".join(parts)).replace("{keys}", rows)


def glossary_entry(component: type[Component]) -> str:
    """Return what the page says of one metric or uncertainty: its docstring without the example."""
    arrow = ""
    if issubclass(component, Metric):
        arrow = " ↑" if component.higher_is_better else " ↓"
    aliases = "".join(f", `{alias}`" for alias in component.aliases)
    first, _, rest = (component.__doc__ or "").partition("\n")
    paragraphs = [first, *re.split(r"\n\s*\n", dedent(rest).strip())]
    kept = [" ".join(p.split()) for p in paragraphs if not p.startswith(("Example", "Attributes"))]
    text = "\n\n".join(_SOURCE.sub("Source: ", paragraph) for paragraph in kept if paragraph)
    return f"### `{component.name}`{aliases}{arrow}\n\n{text}\n"
