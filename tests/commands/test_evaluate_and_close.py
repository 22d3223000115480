"""`bfl evaluate` and `bfl close`: what a run's own end says, of any data, and after its end."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bfl
from bfl.commands.main import main
from bfl.data.datasets import load_dataset
from bfl.errors import DataError
from bfl.experiments.results.summary import BEFORE_CLOSING

KEYS: dict[str, Any] = {
    "backend": "serial",
    "model": "mlp",
    "inference": "deterministic",
    "strategy": "fedavg",
    "clients": 3,
    "rounds": 1,
    "local_epochs": 1,
    "train_examples": 400,
    "mc_samples": 3,
}
CLOSED = {"closing": "bayesian-head+feature-density+conformal", "calibration_share": 0.2}
JUDGED = {"ood_dataset": "rotated+noised", "corruptions": "contrast"}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> bfl.Result:
    folder = str(tmp_path_factory.mktemp("runs"))
    return bfl.run(**KEYS, **CLOSED, **JUDGED, output_dir=folder, name="closed")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bfl.Result:
    """Return the same run without its closing round; a test that changes it takes a copy."""
    folder = str(tmp_path_factory.mktemp("runs"))
    return bfl.run(**KEYS, closing="none", calibration_share=0.2, output_dir=folder, name="plain")


def archive(path: Path, **changes: Any) -> str:
    """Write an archive of the digits, some arrays exchanged, and return its word."""
    digits = load_dataset("digits")
    arrays = {"x_train": digits.train_images, "y_train": digits.train_labels}
    arrays |= {"x_test": digits.test_images, "y_test": digits.test_labels}
    np.savez(path / "data.npz", **{**arrays, **changes})
    return f"npz:{path / 'data.npz'}"


def test_a_run_is_judged_as_at_its_end(
    closed: bfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--foreign", "rotated+noised", "--corruptions", "contrast"]
    output = tmp_path / "found.json"
    words = ["evaluate", str(closed.folder), "--data", archive(tmp_path), *asked]
    assert main([*words, "--output", str(output)]) == 0
    found = json.loads(output.read_text(encoding="utf-8"))
    run = json.loads((closed.folder / "run.json").read_text(encoding="utf-8"))
    own = {name: run[name] for name in ("foreign", "corruptions")}
    for source in own["foreign"]["sources"].values():
        of_before = [by for by in source["uncertainties"] if by.startswith(BEFORE_CLOSING)]
        assert of_before
        for by in of_before:
            del source["uncertainties"][by]
    assert {name: found[name] for name in own} == own
    assert found["metrics"]["conformal-size"] >= 1
    assert found["metrics"].items() <= closed.metrics.items()
    assert (found["examples"], found["samples"]) == (360, 64)  # draws of the last layer
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("area-under-risk-coverage", "auroc", "contrast"))
    assert main([*words, "--output", str(output)]) == 2


def test_a_prediction_says_what_is_unlike_and_how_much_foreign_data_passes(
    closed: bfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = load_dataset("digits").test_images[:12].copy()
    images[11] = 255 - images[11]
    np.save(tmp_path / "few.npy", images)
    words = ["--data", str(tmp_path / "few.npy"), "--output", str(tmp_path / "out.csv")]
    assert main(["predict", str(closed.folder), *words]) == 0
    share = f"{1 - closed.metrics['ood-noised-unfamiliar-share']:.0%} of noised"
    said, familiarity = capsys.readouterr().out, closed.predict(images).familiarity
    assert all(part in said for part in (share, closed.explain_unlike(familiarity, "image")))
    assert re.findall(r"│ +(\d+) │", said)[0] == "11"
    given = (np.append(np.full(11, 0.5), lowest) for lowest in (0.005, 1e-9, 0.5))
    texts = [closed.explain_unlike(each) for each in given]
    assert [text.count(". ") for text in texts] == [2, 2, 1]
    assert texts[0] != texts[1]


def test_arrays_are_evaluated_as_the_file_of_them(closed: bfl.Result) -> None:
    digits = load_dataset("digits")
    images, labels = digits.test_images, digits.test_labels
    found = closed.evaluate(images, labels, foreign="rotated")
    named = closed.evaluate("digits", foreign="rotated")
    assert found == {**named, "data": found["data"]}
    ones = closed.evaluate(images[labels == 1], np.full((labels == 1).sum(), "1"))
    right = closed.predict(images[labels == 1]).predicted == 1
    assert ones["metrics"]["accuracy"] == pytest.approx(right.mean())
    for wrong in (labels[1:], labels + 1, None, labels * 0.5):
        with pytest.raises(DataError):
            closed.evaluate(images, wrong)


def two_channels() -> dict[str, Any]:
    digits = load_dataset("digits")
    return {f"x_{k}": np.repeat(getattr(digits, f"{k}_images"), 2, -1) for k in ("train", "test")}


def test_a_folder_with_fewer_classes_than_the_run_is_told_how_to_name_them(
    closed: bfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "13":
        (tmp_path / name).mkdir()
        for number in range(2):
            pixels = np.full((8, 8), number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    words = ["evaluate", str(closed.folder), "--data", f"folder:{tmp_path}"]
    assert main(words) == 2
    assert f"{tmp_path}/classes.txt" in capsys.readouterr().err
    (tmp_path / "classes.txt").write_text("\n".join(closed.class_names))
    assert main(words) == 0
    assert "--output" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        (two_channels, [], ["images of 2 channels"]),
        (
            lambda: {"class_names": np.array(list("abcdefghijk"))},
            [],
            ["11 classes", "10", "'a' is"],
        ),
        (dict, ["--foreign", "rotatet"], ["rotatet"]),
        (dict, ["--corruptions", "blurr"], ["blurr", "blur"]),
        (dict, ["--data", "digitz"], ["digitz", "digits"]),
        (dict, ["--output", "none/found.json"], ["none"]),
    ],
)
def test_what_does_not_go_with_the_run_is_refused(
    closed: bfl.Result,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: Any,
    options: list[str],
    words: list[str],
) -> None:
    data = archive(tmp_path, **changes())
    assert main(["evaluate", str(closed.folder), "--data", data, *options]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


def test_a_run_that_is_over_is_closed(
    closed: bfl.Result, plain: bfl.Result, tmp_path: Path
) -> None:
    run = bfl.Result(Path(shutil.copytree(plain.folder, tmp_path / "run")))
    words = ["close", str(run.folder), "--backend", "serial"]
    assert main([*words, "--closing", "bayesian-heat"]) == 2
    assert run.metrics == plain.metrics
    shown = 'ood-dataset="rotated+noised" corruptions="contrast"'
    assert main([*words, "--closing", CLOSED["closing"], "--run-config", shown]) == 0
    assert run.rounds == plain.rounds
    ended = [json.loads((r.folder / "run.json").read_text())["environment"] for r in (run, plain)]
    assert ended[0] == ended[1]
    assert run.metrics == closed.metrics != plain.metrics
