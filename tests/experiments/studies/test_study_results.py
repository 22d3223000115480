"""Results of runs: kept, gathered, put together of several machines, and refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, PretendingEngine, bfl, made_up_result, scaled_study, write_study

from bfl.configuration import resolve
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies import folder as folders
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, gather, merge
from bfl.experiments.studies.run_result import RunResult, parse_result, portable, result_of

Output = pytest.CaptureFixture[str]
ONE = "flipout-ws_iid_seed-0"
PLAIN = STUDY.split("[[columns]]")[0]


class Checkout:
    """A checkout with a small study, and the results of some runs that another machine has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = write_study(path / "configs")
        self.results = StudyFolder(path / "docs" / "results" / "small")
        self.out = path / "runs"

    def made(self, *options: Any) -> None:
        """Make runs elsewhere and keep nothing of them but their results."""
        other = self.path.parent / "other-machine"
        assert bfl("study", self.file, "--output", other, "--results", "none", *options) == 0
        self.results.keep(StudyFolder(other / "small").results().values())
        shutil.rmtree(other)

    def study(self, *options: Any) -> int:
        return bfl("study", self.file, "--output", self.out, *options)

    def change(self, **changes: Any) -> None:
        self.results.keep([replace(self.results.results()[ONE], **changes)])


@pytest.fixture
def checkout(tmp_path: Path, engine: PretendingEngine) -> Checkout:
    return Checkout(tmp_path / "checkout")


def result() -> RunResult:
    return RunResult(
        name="run",
        configuration={"rounds": 2, "dataset": "digits"},
        metrics={"accuracy": 0.1 + 0.2, "negative-log-likelihood": float("nan")},
        rounds=({"round": 1, "accuracy": 0.1}, {"round": 2, "accuracy": 1 / 3}),
        retention={"fraction": [0.5, 1.0]},
        seconds=1.5,
        partition="p",
        environment={"git-commit": "c"},
        data={"train": "t"},
        clients={"0": {"global-accuracy": 0.5}},
        lost={"failures": 1},
        posterior="s",
    )


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Metrics to the last bit, curves to seven digits."""
    again = parse_result(result().to_line(), tmp_path)
    assert repr(again.metrics) == repr(result().metrics)
    assert again.rounds[1]["accuracy"] == 0.3333333
    assert again.to_line() == result().to_line()
    same = {"metrics": {}, "rounds": ()}
    assert replace(again, **same) == replace(result(), **same)


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"accuracy": 0.9}},
        {"configuration": {"rounds": 3, "dataset": "digits"}},
        {"content": "0"},
        {"digest": "0"},
        {"format": 1},
        {"rounds": None},
    ],
    ids=str,
)
def test_a_result_changed_by_hand_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    line = json.dumps({**json.loads(result().to_line()), **change})
    (tmp_path / "runs.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(DataError, match=r"runs\.jsonl"):
        StudyFolder(tmp_path).results()


def test_large_results_are_compressed_by_merging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "LARGE", 10)
    one, other = StudyFolder(tmp_path / "one"), StudyFolder(tmp_path / "other")
    one.keep([result()])
    assert merge(other, [one]) == {"run": one.path / "runs.jsonl"}
    assert [path.name for path in other.path.iterdir()] == ["runs.jsonl.gz"]
    assert other.results().keys() == one.results().keys()
    other.keep([replace(result(), name="again")])
    assert set(other.results()) == {"run", "again"}
    (other.path / "runs.jsonl.gz").write_bytes(b"\x1f\x8b nothing")
    with pytest.raises(DataError, match=r"runs\.jsonl\.gz"):
        other.results()


def test_a_configuration_is_the_same_on_every_machine() -> None:
    here = {"dataset": "npz:/here/images.npz", "data-dir": "/here", "rounds": 2, "resume": True}
    there = {"dataset": "npz:/there/at/images.npz", "data-dir": "", "rounds": 2}
    assert portable(here) == portable(there) == {"dataset": "npz:images.npz", "rounds": 2}


def test_runs_whose_results_are_there_are_not_made_again(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    """And tables and figures are made of results alone, in the checkout or where one says."""
    checkout.made("--only", "seed-0")
    engine.asked.clear()
    assert checkout.study("--dry-run") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{ONE}: done as ../docs/results/small/runs.jsonl" in printed
    place = ("--output", checkout.path / "empty")
    assert bfl("plot", checkout.file, *place) == 0
    assert "learning-curves.png" in capsys.readouterr().out
    assert checkout.study() == 0
    assert {name[-6:] for name, _ in engine.asked} == {"seed-1"}
    assert len(StudyFolder(checkout.out / "small").results()) == 8
    elsewhere = shutil.move(checkout.results.path, checkout.path.parent / "elsewhere")
    for results, said in (([elsewhere], "4 of 8"), ([], "0 of 8")):
        assert (
            bfl("table", checkout.file, *place, *(["--results", *results] if results else [])) == 0
        )
        assert said in capsys.readouterr().out
    assert bfl("table", checkout.file, *place, "--results", "nowhere") == 2
    assert bfl("table", checkout.out / "small") == 0
    assert "| 2 of 2 | 50.00 ± 0.00 (15.81) |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"configuration": {"batch-size": 7}}, "batch-size was 7 and is 32"),
        ({"configuration": {"rounds": 9}}, "rounds was 9 and is 4"),
        ({"metrics": {"accuracy": 0.75}}, "accuracy is 0.5 and 0.75"),
        ({"partition": "x"}, "differ in 1 numbers, partition"),
    ],
)
def test_results_that_contradict_the_study_or_each_other_are_refused(
    checkout: Checkout, capsys: Output, changes: dict[str, Any], said: str
) -> None:
    checkout.made("--only", ONE)
    assert checkout.study("--only", ONE, "--results", "none") == 0
    if "configuration" in changes:
        known = checkout.results.results()[ONE].configuration
        changes = {"configuration": {**known, **changes["configuration"]}}
    if "partition" in changes:
        mine = StudyFolder(checkout.out / "small")
        mine.keep([replace(mine.results()[ONE], partition="y")])
    checkout.change(**changes)
    capsys.readouterr()
    assert bfl("table", checkout.file, "--output", checkout.out) == 2
    told = capsys.readouterr().err
    assert str(checkout.results.path / "runs.jsonl") in told
    assert said in told


def test_a_study_grows_by_seeds_and_by_rounds(
    checkout: Checkout, engine: PretendingEngine, capsys: Output
) -> None:
    """What is there is gone on with; nothing is made twice."""
    folder = StudyFolder(checkout.out / "small")
    assert checkout.study("--scale", "rounds=2,seeds=1") == 0
    assert folder.results()[ONE].number_of_rounds == 2
    engine.asked.clear()
    assert checkout.study("--scale", "rounds=2") == 0
    assert {name[-6:] for name, _ in engine.asked} == {"seed-1"}
    assert checkout.study("--only", ONE) == 0
    assert engine.made_rounds[-2:] == [(ONE, 3), (ONE, 4)]
    assert folder.results()[ONE].number_of_rounds == 4
    capsys.readouterr()
    assert bfl("table", folder.path) == 0
    assert "| WS | iid | 1 of 2 |" in capsys.readouterr().out
    assert checkout.study("--scale", "rounds=3") == 2


def test_a_run_in_which_the_server_judged_nothing_is_over_and_a_begun_one_is_not(
    checkout: Checkout,
) -> None:
    """As ``server-evaluates=false`` leaves it: its metrics are there, and there are none."""
    assert checkout.study("--only", ONE) == 0
    folder = RunFolder(checkout.out / "small" / "runs" / ONE)
    (folder.path / "metrics.json").unlink()
    assert not result_of(folder, ONE).over
    folder.write_metrics({})
    assert result_of(folder, ONE).over


# Several machines --------------------------------------------------------------------------------


def test_shards_share_the_runs_and_merge_puts_them_together(
    tmp_path: Path, engine: PretendingEngine, capsys: Output
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    for part in (1, 2, 3):
        assert bfl("study", file, "--output", tmp_path / str(part), "--shard", f"{part}/3") == 0
    names = [name for name, _ in engine.asked]
    assert len(names) == len(set(names)) == 8
    parts = [tmp_path / str(part) / "small" for part in (1, 2, 3)]
    capsys.readouterr()
    for new in (8, 0):
        assert bfl("study", "merge", tmp_path / "all", *parts) == 0
        assert f"{new} results are new" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"runs.jsonl", "study.json"}
    assert bfl("table", tmp_path / "all") == 0
    assert "8 of 8 runs are done" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "-1/2", "a/b", "1/2/3", "1.0/2"])
def test_a_shard_outside_its_number_is_refused(
    text: str, tmp_path: Path, engine: PretendingEngine
) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    assert bfl("study", file, "--output", tmp_path / "out", f"--shard={text}") == 2
    assert not (tmp_path / "out").exists()


def test_of_two_results_of_one_run_that_with_more_rounds_stays(tmp_path: Path) -> None:
    short, long = scaled_study(tmp_path, "rounds=2").runs()[0], scaled_study(tmp_path).runs()[0]
    places = [StudyFolder(tmp_path / name) for name in ("short", "long")]
    places[0].keep([made_up_result(short)])
    places[1].keep([made_up_result(long)])
    for number, order in enumerate((places, places[::-1])):
        into = StudyFolder(tmp_path / f"into{number}")
        merge(into, order)
        assert into.results()[ONE].number_of_rounds == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": {"accuracy": 0.75}}, "accuracy is 0.5 and 0.75"),
        ({"configuration": {"batch-size": 7}}, "batch-size was 32 and is 7"),
        ({"name": "other", "data": {"train": "b"}}, "the train images or labels"),
        ({"name": "other", "data": {"test": "b"}}, "the test images or labels"),
    ],
)
def test_what_contradicts_is_not_put_together(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    run = scaled_study(tmp_path).runs()[0]
    first = made_up_result(run, data={"train": "a", "test": "a"})
    if "configuration" in changes:
        changes = {"configuration": {**first.configuration, **changes["configuration"]}}
    places = [StudyFolder(tmp_path / name) for name in "ab"]
    places[0].keep([first])
    places[1].keep([replace(first, **changes)])
    with pytest.raises(ConfigurationError, match=said):
        merge(StudyFolder(tmp_path / "all"), places)
    assert not (tmp_path / "all").exists()
    with pytest.raises(ConfigurationError, match="holds no result"):
        merge(StudyFolder(tmp_path / "all"), [StudyFolder(tmp_path / "files")])


def test_a_folder_gets_the_study_that_has_grown(tmp_path: Path, engine: PretendingEngine) -> None:
    file = write_study(tmp_path / "files", PLAIN)
    for name, scale in (("few", "seeds=1"), ("many", "seeds=3"), ("other", "seeds=2")):
        assert bfl("study", file, "--output", tmp_path / name, "--scale", scale) == 0
    few, many, other = (tmp_path / name / "small" for name in ("few", "many", "other"))
    assert bfl("study", "merge", few, many) == 0
    assert len(StudyFolder(few).described()["runs"]) == 12
    described = StudyFolder(other).described()
    StudyFolder(other).describe({**described, "runs": ["another"]})
    assert bfl("study", "merge", few, other) == 2


def test_results_of_another_study_are_taken_where_the_configuration_is_the_same(
    tmp_path: Path, engine: PretendingEngine
) -> None:
    """One row as there, by another name, and one that is not quite: its clients train longer."""
    other = (
        PLAIN.replace('title = "Small"', 'title = "Other"\nname = "other"\nreuse = ["small"]')
        .replace('rule = "WS"', 'rule = "pooled"')
        .replace('strategy = "nwa"', 'strategy = "nwa"\nlocal-epochs = 3')
    )
    place = tmp_path / "checkout"
    assert bfl("study", write_study(place / "configs", PLAIN), "--output", tmp_path / "made") == 0
    results = place / "docs" / "results" / "small"
    assert bfl("study", "merge", results, tmp_path / "made" / "small") == 0
    (place / "configs" / "other.toml").write_text(other, encoding="utf-8")
    command = ("study", place / "configs" / "other.toml", "--output", tmp_path / "out")
    for options, made in ((("--scale", "rounds=2"), 8), ((), 4), (("--results", "none"), 4)):
        engine.asked.clear()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if "none" in options:  # not in the checkout, but in the same output
            shutil.copytree(results, tmp_path / "out" / "small")
        assert bfl(*command, *options) == 0
        assert len({name for name, _ in engine.asked}) == made
    kept = StudyFolder(tmp_path / "out" / "other").results()
    assert kept["flipout-pooled_iid_seed-0"].metrics["accuracy"] == 0.5


def test_damaged_files_of_ones_own_are_passed_over_when_asked(tmp_path: Path) -> None:
    scaled = scaled_study(tmp_path / "files", text=PLAIN)
    study = StudyFolder(tmp_path / "study")
    run = RunFolder.create(study.runs, ONE, resolve(scaled.runs()[0].values).values, {})
    run.write_metrics({"accuracy": 0.5})
    (run.path / "metrics.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError):
        gather(OpenedStudy(study, scaled))
    assert gather(OpenedStudy(study, scaled), pass_over_damaged=True).states[ONE] == "failed"


def test_clients_are_counted_in_the_data_where_a_partition_finds_them_there(
    tmp_path: Path, engine: PretendingEngine
) -> None:
    rows = [f"{n % 7},{n % 5},{'abc'[n % 3]},{n % 2}" for n in range(120)]
    table = tmp_path / "patients.csv"
    table.write_text("\n".join(["age,dose,site,outcome", *rows]), encoding="utf-8")
    path, out = tmp_path / "sites.toml", tmp_path / "out"
    base = f'dataset = "table:{table}"\ntarget = "outcome"\nmodel = "mlp"\nrounds = 1'
    path.write_text(f'title = "Sites"\n[base]\n{base}\npartition = "column:site"\n')
    for _ in range(2):
        assert bfl("study", path, "--output", out) == 0
        assert bfl("table", path, "--output", out) == 0
    assert engine.asked == [("run", 3)]
    assert StudyFolder(out / "sites").results()["run"].configuration["clients"] == 3


def test_the_runs_of_a_studys_file_are_listed(
    tmp_path: Path, capsys: Output, engine: PretendingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_study(tmp_path / "files")
    assert bfl("study", path, "--only", "seed-0") == 0
    capsys.readouterr()
    assert bfl("runs", path) == 0
    assert f"8 runs in {tmp_path / 'runs' / 'small'}" in capsys.readouterr().out
