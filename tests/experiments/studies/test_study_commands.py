"""``bfl study``, ``bfl table``, ``bfl plot``: refused before the first run, or made to the end."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from small_study import PUBLISHED, STUDY, PretendingEngine, bfl, write_study

import bfl as bfl_of_python
from bfl.errors import ConfigurationError, RunError
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.runner import GO_ON

Output = pytest.CaptureFixture[str]

RULE = """
from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule

@pooling_rules.register("mine")
class Mine(LinearPoolRule):
    '''A rule.'''
"""


HEADS = '"hbfl"\nevaluated-by = "clients"\nshared = "convolutions"\nmodel = "mlp"'
MASKED = '"nwa"\nexchange = "masked"\nfraction-train = 0.5'
# What stands in the study's file, what in its place, and what the refusal says.
REFUSED = [
    ("rounds =", "round =", "did you mean 'rounds'"),
    ('strategy = "nwa"', 'stratgy = "nwa"', "strategy"),
    ('"nwa"', '"nwaa"', "(run flipout-nwa_iid_seed-0 and 3 more)"),
    ("rounds = 4", "rounds = 0", "rounds is 0"),
    ("clients = 3", "clients = 2000", "1437"),
    ("rounds =", "train-examples = 9e9\nrounds =", "1437"),
    ('"nwa"', HEADS, "shared 'convolutions' needs layers before the first dense one"),
    ('"nwa"', '"hbfl"\nevaluated-by = "clients"\ntest-examples = 2.0', "test-examples is 2"),
    ('"nwa"', MASKED, "of 2 clients a round one that knows its own update knows the other's"),
    ("rounds =", 'dataset = "npz:x.npz"\nrounds =', "x.npz"),
    ('"negative-log-likelihood"', '"best-hamming-loss"', "hamming-loss"),
    ('"negative-log-likelihood"', '"rounds-to-macro-f1-0.5"', "macro-f1"),
]
OPTIONS = [
    (["--scale", "round=0.5"], "rounds"),
    (["--backend", "rays"], "did you mean 'ray'"),
    (["--backend-config", "{"], "not JSON"),
    (["--only", "nothing"], "no run's name"),
    (["--run-config", "rounds=3"], "cannot be given for a study"),
    (["--run-config", "data-dri='x'"], "data-dir"),
]


@pytest.mark.parametrize(
    ("old", "new", "options", "word"),
    [(*case[:2], [], case[2]) for case in REFUSED] + [("", "", *case) for case in OPTIONS],
)
def test_bad_studies_and_options_are_refused_before_the_first_run(
    old: str,
    new: str,
    options: list[str],
    word: str,
    tmp_path: Path,
    capsys: Output,
    engine: PretendingEngine,
) -> None:
    path = write_study(tmp_path / "files", STUDY.replace(old, new) if old else STUDY)
    assert bfl("study", path, "--output", tmp_path / "out", *options) == 2
    said = capsys.readouterr().err
    assert word in said
    assert said.startswith("refused: ")
    assert engine.asked == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_rule_that_cannot_pool_is_refused_before_the_first_run(
    options: list[str], tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    plugin = tmp_path / "my_rule.py"
    broken = "    def decode(self, *_):\n        return None\n"
    plugin.write_text(f"{RULE}{broken}", encoding="utf-8")
    text = STUDY.replace("[base]", f'[base]\nplugins = "{plugin}"').replace('"nwa"', '"mine"')
    text = text.replace("NWA", "mine")
    path, out = (
        write_study(tmp_path / "files", text, PUBLISHED.replace("NWA", "mine")),
        tmp_path / "out",
    )
    assert bfl("study", path, "--output", out, *options) == 2
    said = capsys.readouterr().err
    assert "strategy mine" in said
    assert "(run flipout-mine_iid_seed-0 and 3 more)" in said
    assert engine.asked == []
    keys = f'plugins="{plugin}" strategy="mine" clients=3 output-dir="{out}"'
    assert bfl("run", "--backend", "serial", "--run-config", keys) == 2
    assert not out.exists()


def test_a_study_from_the_first_run_to_its_table(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    path, out = write_study(tmp_path / "files"), tmp_path / "out"
    assert bfl("study", path, "--output", out, "--only", "seed-0", "--scale", "rounds=0.5") == 0
    folder = out / "small"
    assert len(engine.asked) == 4
    printed = capsys.readouterr().out
    assert "scaled down: rounds 4 → 2" in printed
    assert "4 of 4 runs are done" in printed
    by_folder = (["table", folder], ["table", path, "--output", out, "--scale", "rounds=0.5"])
    texts = []
    for arguments in by_folder:
        assert bfl(*arguments) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "| Flipout | WS | iid | 1 of 2 | 50.00 (15.81) | 90.50 ± 1.00 | -40.50 |" in texts[0]
    assert bfl("table", folder, "--format", "csv", "--only", "*nwa*", "--write") == 0
    assert capsys.readouterr().out == (folder / "table.csv").read_text(encoding="utf-8")
    assert {"table.md", "table.tex"} <= {file.name for file in folder.iterdir()}
    assert bfl("plot", folder) == 0
    assert "learning-curves.png" in capsys.readouterr().out
    for study in (
        bfl_of_python.study(folder, only=["ws"]),
        bfl_of_python.study(path, output=out, scale="rounds=0.5", only=["ws"]),
    ):
        assert list(study.frame["rule"]) == ["WS", "WS"]
        assert list(study.by_run["accuracy"]) == [0.5, 0.5]
        assert set(study.by_run["partition"]) == {"iid", "Dirichlet 0.5"}


def test_a_study_is_made_from_python(tmp_path: Path, engine: PretendingEngine) -> None:
    path, out = write_study(tmp_path / "files"), tmp_path / "out"
    made = bfl_of_python.study(path, output=out, only=["*ws*seed-0"], run=True, backend="serial")
    assert len(engine.asked) == len(made.by_run) == 2
    again = bfl_of_python.study(path, output=out, only=["*ws*seed-0"], run=True)
    assert len(engine.asked) == 2
    assert again.frame.equals(made.frame)
    with pytest.raises(ConfigurationError, match="did you mean 'ray'"):
        bfl_of_python.study(path, output=out, run=True, backend="rays")
    with pytest.raises(ConfigurationError, match="is a folder"):
        bfl_of_python.study(out / "small", run=True)


def test_the_printed_command_prints_the_table_also_of_a_study_with_a_plugin(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    plugin = tmp_path / "my rule.py"
    plugin.write_text(RULE, encoding="utf-8")
    text = STUDY.replace("[base]", f'[base]\nplugins = "{plugin}"').replace('"nwa"', '"mine"')
    path = write_study(tmp_path / "my files", text)
    options = ("--output", tmp_path / "out", "--scale", "rounds=0.5", "--results", "none")
    assert bfl("study", path, *options) == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    command = words[words.index("bfl") + 1 :]
    # Another process has not met the plugin.
    printed = subprocess.run(
        [sys.executable, "-c", "from bfl.commands.main import main; exit(main())", *command],
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
    )
    assert printed.returncode == 0, printed.stderr
    assert "8 of 8 runs are done" in printed.stdout


@pytest.mark.parametrize(
    ("error", "status", "told", "done"),
    [
        (RunError, 1, ["1 of 8 runs have failed", "ws_iid_seed-1: no luck"], 7),
        (KeyboardInterrupt, 130, [f"interrupted\n  {GO_ON}"], 4),
    ],
    ids=["failure", "interruption"],
)
def test_a_failure_ends_with_status_1_and_an_interruption_with_130(
    error: type[BaseException],
    status: int,
    told: list[str],
    done: int,
    tmp_path: Path,
    capsys: Output,
    engine: PretendingEngine,
) -> None:
    def fail(name: str, number: int) -> None:
        if name == "flipout-ws_iid_seed-1":
            raise error("no luck")

    engine.act = fail
    path = write_study(tmp_path / "files")
    assert bfl("study", path, "--output", tmp_path / "out") == status
    said = capsys.readouterr()
    assert all(text in said.err for text in told)
    assert f"{done} of 8 runs are done" in said.out


def test_a_damaged_run_fails_alone(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    """Where its result lies in a sound file nothing has failed."""
    path, out = write_study(tmp_path / "files"), tmp_path / "out"
    begin = ("study", path, "--output", out, "--only", "seed-0")
    assert bfl(*begin) == 0
    damaged = "flipout-ws_iid_seed-0"
    (out / "small" / "runs" / damaged / "rounds.jsonl").write_text("garbage\n{}\n")
    assert bfl(*begin) == 0
    (out / "small" / "runs.jsonl").unlink()
    capsys.readouterr()
    assert bfl("study", path, "--output", out) == 1
    said = capsys.readouterr()
    assert f"{damaged}/rounds.jsonl, line 1: not a round" in said.err
    assert "7 of 8 runs are done" in said.out
    assert bfl("table", out / "small") != 0, "a table says that it could not be read"
    # One in a file of another place is not made again: days of computing may stand in it.
    kept = out / "small" / "runs.jsonl"
    kept.write_text("<<<<<<< HEAD\n" + kept.read_text())
    capsys.readouterr()
    begin = ("study", path, "--output", tmp_path / "new", "--results", out / "small")
    assert bfl(*begin) == 2
    assert str(kept) in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_changed_study_does_not_go_on_with_the_old_runs(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    out = tmp_path / "out"
    assert bfl("study", write_study(tmp_path / "files"), "--output", out, "--only", "ws_iid") == 0
    path = write_study(tmp_path / "files", STUDY.replace("local-epochs = 2", "local-epochs = 3"))
    assert bfl("study", path, "--output", out) == 2
    said = capsys.readouterr().err
    assert said.count("local-epochs was 2 and is 3") == 1
    assert "and 1 more)" in said
    assert "another name" in said
    assert bfl("table", path, "--output", out) == 2
    said = capsys.readouterr().err
    assert said.count("local-epochs was 2 and is 3") == 1
    assert "and 1 more runs" in said
    # One that has grown does.
    grown = STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2]")
    assert bfl("study", write_study(tmp_path / "files", grown), "--output", out) == 0
    assert len(engine.asked) == 12


def test_what_failed_before_its_first_round_is_made_anew_with_the_edited_plugin(
    tmp_path: Path, engine: PretendingEngine
) -> None:
    plugin = tmp_path / "my_rule.py"
    plugin.write_text(RULE, encoding="utf-8")
    text = STUDY.replace("[base]", f'[base]\nplugins = "{plugin}"').replace('"nwa"', '"mine"')
    options = write_study(tmp_path / "files", text), "--output", tmp_path / "out"

    def act(name: str, number: int) -> None:
        raise RunError("no luck")

    engine.act = act
    assert bfl("study", *options) == 1
    plugin.write_text(f"{RULE}\n# Better.\n", encoding="utf-8")
    assert bfl("study", *options, "--dry-run") == 0
    assert bfl("table", *options) == 0


def test_a_dry_run_lists_and_writes_nothing(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    axis = 'dataset = ["digits", "svhn", "npz:x.npz"]\nseed ='
    text = STUDY.split("[[columns]]")[0].replace("seed =", axis)
    path = write_study(tmp_path / "files", text)
    assert bfl("study", path, "--output", tmp_path / "out", "--dry-run") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "flipout-ws_digits_iid_seed-0: missing" in said
    assert "24 runs" in said
    assert "missing: dataset 'svhn'" in said
    assert "missing: dataset 'npz:x.npz'" in said
    assert not (tmp_path / "out").exists()
    assert engine.asked == []


def test_runs_that_are_not_wanted_need_no_data_and_still_have_to_be_sound(
    tmp_path: Path, capsys: Output, engine: PretendingEngine
) -> None:
    text = STUDY.split("[[columns]]")[0].replace(
        "seed =", 'dataset = ["digits", "npz:missing.npz"]\nseed ='
    )
    place = ("--output", tmp_path / "out", "--only", "ws_digits_iid_seed-0")
    path = write_study(tmp_path / "files", text)
    assert bfl("study", path, *place) == 0
    assert len(engine.asked) == 1
    assert bfl("study", path, "--output", tmp_path / "out") == 2
    said = capsys.readouterr().err
    assert "missing.npz" in said
    assert "(run flipout-ws_npz-missing.npz_iid_seed-0 and 7 more)" in said
    write_study(tmp_path / "files", text.replace('"nwa"', '"nwaa"'))
    assert bfl("study", path, *place) == 2
    assert "did you mean 'nwa'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["table", "plot"])
def test_what_is_no_study_is_refused(command: str, tmp_path: Path, capsys: Output) -> None:
    assert bfl(command, tmp_path) == 2
    assert "is not the folder of a" in capsys.readouterr().err
    assert bfl(command, tmp_path / "no.toml") == 2
    assert "no.toml" in capsys.readouterr().err
    assert bfl("study", write_study(tmp_path).with_suffix("")) == 2
    assert "small.toml'?" in capsys.readouterr().err
    assert bfl("table", write_study(tmp_path), "--format", "latx") == 2
    assert "did you mean 'latex'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rounds", "every", "scale", "said"),
    [
        (10, 5, "", ""),
        (10, 4, "", "does not evaluate round 5; allowed: a multiple of evaluate-every (4)"),
        (4, 1, "", "up to rounds (4)"),
        (10, 0, "", "does not evaluate round 5"),
        (10, 5, "rounds=2", ""),
    ],
)
def test_a_number_of_a_round_that_is_not_evaluated_is_refused(
    rounds: int, every: int, scale: str, said: str, tmp_path: Path, capsys: Output
) -> None:
    """Before the first run; with fewer rounds than the file's the column is empty."""
    path = tmp_path / "study.toml"
    column = '[[columns]]\nmetric = "accuracy-at-round-5"\n'
    base = f"[base]\nrounds = {rounds}\nevaluate-every = {every}\n"
    path.write_text(f'title = "Rounds"\n{base}{column}', encoding="utf-8")
    options = ["--dry-run", "--backend", "serial", "--output", str(tmp_path / "runs")]
    code = bfl("study", path, *options, *(["--scale", scale] if scale else []))
    told = " ".join(capsys.readouterr().err.split())
    assert (code == 0) == (not said)
    assert said in told


REAL = """
title = "Real"
[base]
model = "mlp"
dataset = "npz:images.npz"
clients = 2
rounds = 2
local-epochs = 1
train-examples = 0.5
test-examples = 16
mc-samples = 2
evaluate-mc-samples = 1
[axes]
seed = [0]
strategy = ["nwa"]
"""


@pytest.mark.slow
def test_a_real_study_in_this_process(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small images: run, run again, tabulated, drawn."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (80, 16, 16), np.uint8)
    labels = np.arange(80) % 4
    np.savez(tmp_path / "images.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    path = write_study(tmp_path / "files", REAL, PUBLISHED)
    assert bfl("study", path, "--backend", "serial") == 0
    assert "1 of 1 runs are done" in capsys.readouterr().out
    folder = tmp_path / "runs" / "small"
    run = StudyFolder(folder).run("nwa_seed-0")
    assert sum(run.read_json("run.json:partition")["num_examples"]) == 40
    assert run.predictions()[1].shape == (16,)
    assert [entry["round"] for entry in run.rounds()] == [1, 2]
    assert (run.path / "figures" / "partition.png").is_file()
    # The folder keeps the absolute path of the data.
    assert bfl("study", path, "--backend", "serial", "--only", "nwa") == 0
    assert bfl("table", folder) == 0
    assert "| nwa | 1 of 1 |" in capsys.readouterr().out
    assert bfl("plot", folder) == 0
    assert "retention-curves.png" in capsys.readouterr().out
