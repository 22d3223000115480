"""Tables say which runs have gone on without clients that failed or were refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import finish_run, scaled_study

from bfl.errors import DataError
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.merging import merge
from bfl.experiments.studies.run_result import read_result, result_of, write_result
from bfl.experiments.studies.table import study_table


def test_a_table_says_which_runs_went_on_without_clients(tmp_path: Path) -> None:
    scaled = scaled_study(tmp_path / "files")
    study = StudyFolder(tmp_path / "study")
    study.begin(scaled, {}, {})
    whole, short_of = scaled.runs[:2]
    for run, failures, refused in ((whole, 0, 0), (short_of, 2, 1)):
        finish_run(study, run.name, run.values, accuracy=0.5, negative_log_likelihood=1.0)
        for number in (2, 3):
            entry = {"round": number, "failures": failures, "refused": refused}
            study.run(run.name).append_round(entry)
    notes = " ".join(study_table(study, scaled).notes)
    assert f"over all rounds: {short_of.name} (4 failures, 2 refused)." in notes
    assert '"lost": {}' in result_of(study.run(whole.name), whole.name).to_json()
    kept = result_of(study.run(short_of.name), short_of.name)
    write_result(tmp_path / "kept.json", kept)
    assert read_result(tmp_path / "kept.json").lost == {"failures": 4, "refused": 2}


def test_of_results_that_agree_the_one_that_knows_it_is_taken(tmp_path: Path) -> None:
    scaled = scaled_study(tmp_path / "files")
    study, run = StudyFolder(tmp_path / "study"), scaled.runs[0]
    study.begin(scaled, {}, {})
    finish_run(study, run.name, run.values, accuracy=0.5, negative_log_likelihood=1.0)
    study.run(run.name).append_round({"round": 2, "failures": 2, "refused": None})
    known = result_of(study.run(run.name), run.name)
    old, new = StudyFolder(tmp_path / "old"), StudyFolder(tmp_path / "new")
    write_result(old.result_file(run.name), replace(known, lost=None))
    write_result(new.result_file(run.name), known)
    write_result(study.result_file(run.name), replace(known, lost=None))
    assert read_result(old.result_file(run.name)).lost is None
    said = "clients that failed or were refused, counted over all rounds"
    assert f"{said}: {run.name} (2 failures)." in " ".join(study_table(study, scaled).notes)
    assert merge(old.path, [new.path]).new == {run.name: new.result_file(run.name)}
    assert read_result(old.result_file(run.name)).lost == {"failures": 2}
    write_result(new.result_file(run.name), replace(known, lost=None))
    assert merge(old.path, [new.path]).new == {}
    assert read_result(old.result_file(run.name)).lost == {"failures": 2}


@pytest.mark.parametrize("failures", ["two", [2]])
def test_rounds_that_do_not_say_it_in_numbers_are_refused(tmp_path: Path, failures: Any) -> None:
    scaled = scaled_study(tmp_path / "files")
    study, run = StudyFolder(tmp_path / "study"), scaled.runs[0]
    study.begin(scaled, {}, {})
    finish_run(study, run.name, run.values, accuracy=0.5, negative_log_likelihood=1.0)
    study.run(run.name).append_round({"round": 2, "failures": failures})
    with pytest.raises(DataError, match=r"rounds\.jsonl is corrupt: failures and refused"):
        result_of(study.run(run.name), run.name)
