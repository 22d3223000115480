"""Multi-label runs: of rows, of a table with names, and of images."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import bfl
from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.data.datasets import Reading, load_dataset
from bfl.data.datasets.table import table_as_written
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.evaluation.uncertainty import uncertainties

KEYS = {"task": "multi-label", "model": "mlp", "clients": 3, "backend": "serial", "mc_samples": 4}


def labelled(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (N, 5) and three labels of each (N, 3), which follow from them but for noise."""
    generator = np.random.default_rng(0)
    rows, weights = generator.normal(size=(number, 5)), generator.normal(size=(5, 3))
    return rows, (rows @ weights + 0.2 * generator.normal(size=(number, 3)) > 0).astype(int)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
def test_labels_are_learnt_from_rows_and_predicted_for_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, labels = labelled(300)
    keys = {**KEYS, "rounds": 2, "local_epochs": 25, "prior_scale": 0.1}
    result = bfl.run(data=(rows, labels), output_dir=str(tmp_path), **keys)
    # Chance is 0.5 a label: 60 test rows of three labels would be so good once in 10^20.
    assert result.metrics["hamming-loss"] < 0.2
    assert result.metrics["accuracy"] > 0.5
    assert {"client-curves", "retention-curves"} <= result.figures.keys()
    with np.load(result.folder / "labels.npz") as kept:
        guessed = kept["probability"] > 0.5
        assert result.metrics["micro-f1"] == f1_score(kept["targets"], guessed, average="micro")
    frame = pd.DataFrame(rows, columns=[f"x{i}" for i in range(5)])
    predicted = result.predict_labels(frame)
    assert (predicted.predicted == labels).mean() > 0.8
    again = result.evaluate(result.configuration["dataset"])["metrics"]
    assert again["macro-f1"] == result.metrics["macro-f1"]
    with pytest.raises(DataError, match="corruptions is 'blur'"):
        result.evaluate(result.configuration["dataset"], corruptions="blur")
    with pytest.raises(BflError, match="predict_labels"):
        result.predict(frame)
    monkeypatch.chdir(tmp_path)
    frame.to_csv("new.csv", index=False)
    frame.set_index(pd.Index([f"{n:03d}" for n in range(len(frame))], name="id")).to_parquet("n.pq")
    assert main(["predict", str(result.folder), "--data", "new.csv"]) == 0
    assert "label0" in capsys.readouterr().out
    with np.load(f"{result.name}-new-predictions.npz") as written:
        np.testing.assert_array_equal(written["predicted"], predicted.predicted)
    assert main(["predict", str(result.folder), "--data", "new.csv", "--output", "p.csv"]) == 0
    table = pd.read_csv("p.csv")
    assert main(["predict", str(result.folder), "--data", "n.pq", "--output", "q.csv"]) == 0
    assert pd.read_csv("q.csv", dtype=str)["id"].tolist()[:2] == ["000", "001"]
    twice = frame.set_index(pd.Index(frame["x0"], name="x0"))
    twice.to_parquet("twice.pq")
    assert table_as_written(Path("twice.pq")).equals(frame)
    assert table["row"].tolist() == list(range(1, len(frame) + 1))
    found = ["label0" in each.split(", ") for each in table["labels"]]
    assert found == predicted.predicted[:, 0].tolist()
    np.testing.assert_allclose(table["probability of label1"], predicted.probability[:, 1])
    np.testing.assert_allclose(table["x4"], frame["x4"])


def test_columns_of_a_table_are_its_labels(tmp_path: Path) -> None:
    rows, labels = labelled(50)
    names = ["urban", "water", "label of all"]
    frame = pd.DataFrame(rows).assign(**dict(zip(names, labels.T, strict=True)))
    frame.astype({"urban": bool}).to_csv(tmp_path / "t.csv", index=False)
    word = f"table:{tmp_path / 't.csv'}"
    dataset = load_dataset(word, reading=Reading(task="multi-label", target="urban, water"))
    assert dataset.class_names == ("urban", "water")
    assert dataset.test_targets is not None
    assert dataset.test_targets.shape == (len(dataset.test_labels), 2)
    assert np.prod(dataset.image_shape) == 6  # what is no label is an input
    left_out = Reading(task="multi-label", target="urban,water,urban", left_out="label of all")
    assert load_dataset(word, reading=left_out).class_names == ("urban", "water")
    with pytest.raises(DataError, match="at least two of them"):
        load_dataset(word, reading=Reading(task="multi-label"))
    frame.assign(water=2).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"row 1 of column .water. holds .2"):
        load_dataset(word, reading=Reading(task="multi-label", target="urban,water"))
    with pytest.raises(DataError, match=re.escape("did you mean 'water'")):
        load_dataset(word, reading=Reading(task="multi-label", target="urban,wter"))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
def test_labels_of_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (60, 8, 8), np.uint8)
    labels = np.stack([images[:, :4].mean((1, 2)) > 127, images.mean((1, 2)) > 127], axis=1)
    result = bfl.run(
        data=(images, labels),
        output_dir=str(tmp_path),
        **{
            **KEYS,
            "model": "resnet8",
            "rounds": 1,
            "corruptions": "blur",
            "ood_dataset": "rotated",
            "server_data": "held-back",
            "server_examples": 10.0,
            "best_metric": "macro-f1",
        },
    )
    assert 0.0 <= result.metrics["micro-f1"] <= 1.0
    assert result.best == {
        "metric": "validation-macro-f1",
        "round": 1,
        "value": result.rounds[0]["validation-macro-f1"],
    }
    assert result.predict_labels(images[:3]).probability.shape == (3, 2)
    # The curves that figures of a study draw, of classes too.
    assert {
        f"retention-area-accuracy-{u.name}" for u in uncertainties.classes() if u.retention
    } <= result.metrics.keys()
    held = json.loads((result.folder / "partition.json").read_text())
    with np.load(result.folder / "labels.npz") as kept:
        counts = labels.sum(axis=0) - kept["targets"].sum(axis=0)
        test = load_dataset(result.configuration["dataset"], reading=Reading(task="multi-label"))
        turned = result.predict_labels(np.rot90(test.test_images, axes=(1, 2)))
        score = np.concatenate(
            [kept["predictive-entropy"], turned.uncertainty["predictive-entropy"]]
        )
    foreign = np.arange(len(score)) >= len(score) // 2
    assert result.metrics["ood-rotated-auroc"] == pytest.approx(roc_auc_score(foreign, score))
    everybodys = [*held["class_counts"], *held["server"]["class_counts"]]
    np.testing.assert_array_equal(np.sum(everybodys, axis=0), counts)
    found = result.evaluate(result.configuration["dataset"], corruptions="blur")
    assert found["corruptions"] == json.loads((result.folder / "corruptions.json").read_text())
    for name, by_strength in found["corruptions"]["blur"].items():
        assert by_strength[0] == result.metrics[name]
        assert len(by_strength) == 6


@pytest.mark.parametrize(
    ("task", "key", "value"),
    [
        *(("multi-label", "closing", "bayesian-head"), ("multi-label", "predictive", "ensemble")),
        *(("multi-label", "partition", name) for name in ("dirichlet", "shards", "step")),
        ("multi-label", "partition", "step-overlapping"),
        *(("regression", "closing", "bayesian-head"), ("regression", "evaluated-by", "clients")),
        *(("regression", "predictive", "ensemble"), ("regression", "weighting", "accuracy")),
        ("regression", "weighting", "q-fair"),
    ],
)
def test_what_is_for_classes_is_refused(task: str, key: str, value: str) -> None:
    keys = {"task": task, "dataset": "table:any.csv", key: value}
    with pytest.raises(ConfigurationError, match=f"task is '{task}' and {key} is '{value}'"):
        resolve(keys, check_data=False)


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_a_data_set_with_a_class_each_is_refused(task: str) -> None:
    with pytest.raises(BflError, match=f"task is '{task}' and dataset is 'digits'"):
        bfl.run(task=task, backend="serial", clients=2)
