"""LaTeX tables have no sign that plain LaTeX does not print, whatever a study calls its lines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_study import scaled_study

from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import latex
from bfl.experiments.studies.table import study_table

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))


def strings(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from strings(value)


def signs_of_studies() -> set[str]:
    texts = (text for file in CONFIGS for text in strings(tomllib.loads(file.read_text("utf-8"))))
    return {sign for text in texts for sign in text if not sign.isascii()}


def test_every_sign_that_a_study_uses_is_printed(tmp_path: Path) -> None:
    used = signs_of_studies()
    assert {"δ", "ε", "×"} <= used
    signs = "".join(sorted(used | set("±−→√–α≈≤†‡·")))
    text = f"""
title = 'A {signs} a<b>c|d'
[base]
rounds = 1
clients = 3
[[columns]]
metric = "accuracy"
title = 'in {signs}, a<b'
[[rows]]
label = {{ method = 'WS {signs}' }}
[[rows]]
label = {{ method = 'WC a>b' }}
"""
    scaled = scaled_study(tmp_path / "files", text=text, published=None)
    printed = latex(study_table(StudyFolder(tmp_path / "study"), scaled))
    assert printed.isascii(), {sign for sign in printed if not sign.isascii()}
    for expected in (r"$\delta$", r"$\varepsilon$", r"$\times$", r"a$<$b$>$c\textbar{}d", "a$<$b"):
        assert expected in printed
    assert not set(printed.replace("$<$", "").replace("$>$", "")) & set("<>|")


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "results").glob("privacy-*/table.tex")))
def test_the_committed_tables_of_privacy_have_none_either(file: Path) -> None:
    assert file.read_text("utf-8").isascii()
