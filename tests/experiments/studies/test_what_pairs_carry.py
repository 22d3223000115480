"""Outliers, other seeds, lines without runs, false copies: none changes what the pairs carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_study import finished_study, scaled_study

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.studies.checks import PlannedRun
from bfl.experiments.studies.contradictions import untrue_copies
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.formats import latex
from bfl.experiments.studies.gathering import gather
from bfl.experiments.studies.merging import merge
from bfl.experiments.studies.run_result import result_of, write_result
from bfl.experiments.studies.same_runs import as_run

ONE = [0.411, 0.422, 0.433, 0.414, 0.445, 0.447]
OTHER = [0.40, 0.41, 0.42, 0.40, 0.43]
ORDER = """
[[orders]]
metric = "accuracy"
better = { method = "A" }
worse = { method = "B" }
"""


def test_false_copies_are_refused(tmp_path: Path) -> None:
    """Two runs are said to be one computation, and have other numbers."""
    finished_study(tmp_path, {"A": [0.4], "B": [0.5]})
    study, target = StudyFolder(tmp_path / "study"), tmp_path / "merged"
    first, second = (result_of(study.run(f"{name}_seed-0"), f"{name}_seed-0") for name in "ab")
    copy = replace(second, made_as=first.name)
    (told,) = untrue_copies([copy, first])
    assert "are said to be one computation (made-as) and differ in 1 numbers" in told
    assert "accuracy is 0.4 and 0.5" in told
    assert "remove both" in told
    planned = scaled_study(tmp_path / "planned", text=_text(tmp_path), published=None).runs[0]
    again = as_run(copy, PlannedRun(planned, resolve(planned.values), {}))
    assert again.made_as == "", "of no run may be said that it is its own copy"
    assert not list(untrue_copies([first, second]))
    assert not list(untrue_copies([first, replace(first, name=second.name, made_as=first.name)]))
    # Of a source that is not there its copies have to agree with each other.
    assert list(untrue_copies([replace(first, name="c", made_as="x"), replace(copy, made_as="x")]))
    ours, theirs = StudyFolder(tmp_path / "ours"), StudyFolder(tmp_path / "theirs")
    write_result(ours.result_file(first.name), first)
    write_result(theirs.result_file(copy.name), copy)
    with pytest.raises(ConfigurationError, match="said to be one computation"):
        merge(target, [ours.path, theirs.path])
    assert not target.exists()
    runs = scaled_study(tmp_path / "again", text=_text(tmp_path), published=None).runs
    with pytest.raises(ConfigurationError, match="said to be one computation"):
        gather(StudyFolder(tmp_path / "new"), runs, [ours.path, theirs.path])


def _text(folder: Path) -> str:
    return next((folder / "files").glob("*.toml")).read_text("utf-8")


def test_negative_numbers_are_set_with_a_minus(tmp_path: Path) -> None:
    lines = {"A": [-0.3, -0.35], "B": [-0.3, -0.351]}
    text = latex(finished_study(tmp_path, lines, "retention-gain-accuracy-epistemic"))
    assert "$-$0.325 $\\pm$ 0.035" in text
    assert "{-0" not in text
