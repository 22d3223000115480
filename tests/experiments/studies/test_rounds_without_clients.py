"""Tables say which runs have gone on without clients that failed or were refused."""

from __future__ import annotations

from pathlib import Path

from small_study import finish_run, scaled_study

from bfl.experiments.studies.folder import StudyFolder
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
    assert "lost" not in result_of(study.run(whole.name), whole.name).to_json()
    kept = result_of(study.run(short_of.name), short_of.name)
    write_result(tmp_path / "kept.json", kept)
    assert read_result(tmp_path / "kept.json").lost == {"failures": 4, "refused": 2}
