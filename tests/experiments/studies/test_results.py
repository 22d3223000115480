"""A study's two data frames: what runs leave, written, read by anyone, and what is refused."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from small_study import STUDY, begun_study, finish_run, made_study, opened, write_study

from bfl.errors import BflError, ConfigurationError, DataError
from bfl.experiments.results.run_folder import CLIENTS, METRICS, RETENTION, RunFolder
from bfl.experiments.studies.results import StudyFolder, gather, open_study, read_run, write_results
from bfl.experiments.studies.study import Run

FIRST, SECOND = "flipout-ws_iid_seed-0", "flipout-nwa_iid_seed-0"
NAN = float("nan")
ROUNDS = [
    {"train-loss": 1.0},  # not evaluated
    {"accuracy": 0.5, "log-precision-spread": 0.25},
    {"ensemble-accuracy": 0.123456789},  # the posterior's logits are not finite
    {"accuracy": NAN, "negative-log-likelihood": 1.5},
]


def make(folder: StudyFolder, run: Run) -> None:
    if run.name == FIRST:
        made = finish_run(folder, run, ROUNDS, accuracy=1 / 3, negative_log_likelihood=NAN)
        curve = {"area": 0.5, "value": [0.9, 0.8, 0.7]}
        made.write_json(
            RETENTION,
            {
                "fraction": [0.25, 0.33, 1.0],
                "curves": {"accuracy": {"epistemic": curve}},
                "gains": {"accuracy": {"epistemic": 0.25}},
            },
        )
        made.write_json(CLIENTS, {"0": {"global-accuracy": 0.25}, "11": {"global-accuracy": 1.0}})
    if run.name == SECOND:
        finish_run(folder, run, accuracy=0.5)


def test_a_runs_row_and_curves(tmp_path: Path) -> None:
    made_study(tmp_path, make)
    row, curves = read_run(RunFolder(tmp_path / "small" / "runs" / FIRST))
    points = {
        name: dict(zip(of["round"], of["value"], strict=True))
        for name, of in curves.groupby("metric")
    }
    assert row["accuracy"] == 1 / 3
    assert row["diverged"] == "negative-log-likelihood"
    assert row["seconds"] == 8.0
    assert row["retention-gain-accuracy-epistemic"] == 0.25
    assert points["accuracy"][2] == 0.5
    assert list(points["accuracy"]) == [2, 4]
    assert points["ensemble-accuracy"] == {3: 0.1234568}
    assert points["log-precision-spread"] == {2: 0.25}
    assert points["accuracy-retaining-25-by-epistemic"] == {4: 0.9}
    assert points["accuracy-retaining-100-by-epistemic"] == {4: 0.7}
    assert points["client-11-global-accuracy"] == {4: 1.0}
    assert "train-loss" not in points


def test_results_are_two_files_that_pandas_reads_in_one_line(tmp_path: Path) -> None:
    table = made_study(tmp_path, make)
    folder = StudyFolder(tmp_path / "small")
    write_results(folder, table.results)
    frame = pd.read_csv(folder.path / "runs.csv", index_col="run")
    assert frame.loc[FIRST, ["rule", "partition", "seed", "accuracy"]].tolist() == [
        "WS",
        "iid",
        0,
        1 / 3,
    ]
    curves = pd.read_csv(folder.path / "curves.csv")
    assert list(curves) == ["run", "round", "metric", "value"]
    assert curves.query("metric == 'accuracy' and round == 2").value.tolist() == [0.5, 0.2]
    # And by a study, without the runs' folders.
    kept = gather(opened(folder))
    shutil.rmtree(folder.runs)
    alone = gather(opened(folder))
    for results in (table.results, kept, alone):
        assert list(results.frame.index) == [FIRST, SECOND]
        assert results.frame["seed"].tolist() == ["0", "0"]
        assert results.numbers("accuracy").to_dict() == {FIRST: 1 / 3, SECOND: 0.5}
        assert list(results.numbers("negative-log-likelihood").index) == [FIRST], "NaN, not absent"
        assert results.numbers("best-accuracy").to_dict() == {FIRST: 0.5, SECOND: 0.2}
        assert results.numbers("client-11-global-accuracy").to_dict() == {FIRST: 1.0}
        reached = results.numbers("rounds-to-accuracy-0.5").to_dict()
        assert reached == {FIRST: 2, SECOND: float("inf")}
        assert len(results.states) == 6
    write_results(StudyFolder(tmp_path / "again"), alone)
    for file in ("runs.csv", "curves.csv"):
        assert (tmp_path / "again" / file).read_bytes() == (folder.path / file).read_bytes()


def test_labels_are_texts_whatever_they_look_like(tmp_path: Path) -> None:
    text = STUDY.split("[published]")[0].replace('"WS"', '"None"').replace('"NWA"', '"007"')
    text = "\n".join(line for line in text.splitlines() if not line.startswith("published"))
    table = made_study(tmp_path, lambda f, run: finish_run(f, run, accuracy=0.5), text)
    folder = StudyFolder(tmp_path / "small")
    write_results(folder, table.results)
    frame = folder.read_frame(("rule", "seed", "model", "partition"))
    assert set(frame["rule"]) == {"None", "007"}


def test_what_a_checkout_keeps_is_read_after_the_own_runs(tmp_path: Path) -> None:
    made_study(tmp_path / "one", lambda f, run: finish_run(f, run, accuracy=0.25))
    other = StudyFolder(tmp_path / "one" / "small")
    write_results(other, gather(opened(other)))
    made_study(tmp_path / "two", make)
    committed = tmp_path / "two" / "docs" / "results" / "small"
    shutil.copytree(other.path, committed)
    path = tmp_path / "two" / "files" / "small.toml"
    found = open_study(path, output=tmp_path / "two").results
    assert found.numbers("accuracy")[SECOND] == 0.5
    assert found.numbers("accuracy")["flipout-ws_iid_seed-1"] == 0.25
    assert not found.states
    assert len(open_study(path, output=tmp_path / "two", anew=True).results.states) == 6


def test_a_changed_study_has_no_results_of_the_old_one(tmp_path: Path) -> None:
    made_study(tmp_path, make)
    folder = StudyFolder(tmp_path / "small")
    changed = STUDY.replace("local-epochs = 2", "local-epochs = 3")
    write_study(tmp_path / "files", changed)
    for kept in (False, True):
        if kept:
            write_results(folder, gather(opened(folder)))
            (folder.runs / FIRST / METRICS).unlink()
            (folder.runs / SECOND / METRICS).unlink()
        found = open_study(tmp_path / "files" / "small.toml", output=tmp_path)
        with pytest.raises(ConfigurationError, match=f"{FIRST if not kept else ''}.*1 more"):
            gather(found)
    # One that has grown goes on.
    write_study(tmp_path / "files", STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2]"))
    found = open_study(tmp_path / "files" / "small.toml", output=tmp_path)
    assert len(found.results.frame) == 2
    assert len(found.results.states) == 10


def test_results_of_other_data_are_refused(tmp_path: Path) -> None:
    def with_data(folder: StudyFolder, run: Run) -> None:
        made = finish_run(folder, run, accuracy=0.5)
        from bfl.experiments.results.run_folder import DATA

        made.write_json(DATA, {"test": "aa" if run.name == FIRST else "bb"})

    with pytest.raises(ConfigurationError, match=f"test-sha256.*'{FIRST}': 'aa'"):
        made_study(tmp_path / "one", with_data)
    # Of one data set other sites are other data.
    sites = '[{ label = "iid", test-sites = "site:a" }, { label = "iid 2" }]'
    text = f'title = "t"\n[base]\nclients = 2\n[axes]\nsite = {sites}\n'

    def by_sites(folder: StudyFolder, run: Run) -> None:
        made = finish_run(folder, run, accuracy=0.5)
        made.write_json("run.json", {"data": {"test": run.labels["site"]}})

    assert len(made_study(tmp_path / "two", by_sites, text).results.frame) == 2


@pytest.mark.parametrize("file", ["study.toml", "runs.csv", "curves.csv", "runs/x/rounds.jsonl"])
def test_a_damaged_file_is_named(file: str, tmp_path: Path) -> None:
    table = made_study(tmp_path, make)
    folder = StudyFolder(tmp_path / "small")
    write_results(folder, table.results)
    file = file.replace("/x/", f"/{FIRST}/")
    (folder.path / file).write_text("{\n,,,\n\0\n")
    with pytest.raises((DataError, ConfigurationError), match=file.rpartition("/")[2]):
        gather(opened(folder))


def test_only_selects_by_part_or_pattern(tmp_path: Path) -> None:
    folder = begun_study(tmp_path)
    assert len(opened(folder, ["ws"]).runs) == 4
    assert len(opened(folder, ["*_seed-0", "nwa_iid"]).runs) == 5
    with pytest.raises(BflError, match="'sw'"):
        opened(folder, ["sw"])
