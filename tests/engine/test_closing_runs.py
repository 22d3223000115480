"""Runs with a closing round: as they are, masked, interrupted, by Flower's Ray engine, refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import KilledError, digests, make_run

import bfl
from bfl.closing.base import SumsRound
from bfl.configuration import resolve
from bfl.data.datasets import cached_dataset, load_dataset
from bfl.data.datasets.subset import with_test_examples
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.state import Snapshots
from strategies import closing
from strategies.application.data import divide
from strategies.application.preflight import check_before_start
from strategies.federation import Federation

VALUES: dict[str, Any] = {
    "model": "mlp",
    "inference": "deterministic",
    "strategy": "fedavg",
    "train-examples": 400,
    "test-examples": 100,
    "rounds": 2,
    "local-epochs": 1,
    "closing": "bayesian-head+feature-density+conformal",
    "calibration-share": 0.2,
    "corruptions": "noise+rotation",
}

BY_CLASS = "conformal-by-class"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(VALUES, 3, tmp_path_factory.mktemp("closing") / "whole")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return make_run(VALUES, 3, tmp_path_factory.mktemp("closing") / "run", closing="none")


def found(folder: RunFolder) -> dict[str, np.ndarray]:
    return dict(np.load(folder.path / "closing.npz"))


def test_a_closed_run_predicts_as_it_was_judged(whole: RunFolder) -> None:
    result = bfl.load(whole.path)
    images = with_test_examples(cached_dataset("digits", ""), 100).test_images
    predicted, (judged, _) = result.predict(images), whole.predictions()
    np.testing.assert_array_equal(predicted.mean_probability, judged.mean_probability)
    names = np.load(whole.path / "predictions.npz").files
    written = {name for name in names if not name.startswith("example-")}
    assert predicted.arrays().keys() - {"class_names"} == written - {"labels"}
    for name, held in judged.sets.items():
        np.testing.assert_array_equal(predicted.sets[name], held)
    assert set(judged.scores) == {"feature-density", "energy", "max-logit"}
    np.testing.assert_array_equal(predicted.familiarity, judged.familiarity)
    before, after = (whole.metrics()[f"held-back-nll{word}"] for word in ("-before", ""))
    assert after <= before
    assert whole.metrics()["unfamiliar-share"] == np.mean(judged.familiarity < 0.01)
    np.testing.assert_array_equal(
        predicted.uncertainty["feature-density"], judged.scores["feature-density"]
    )


def test_prediction_sets_are_judged_globally_and_by_client(
    whole: RunFolder, tmp_path: Path
) -> None:
    run = make_run(VALUES, 3, tmp_path / "run", evaluated_by="clients", corruptions="none")
    numbers, (judged, labels) = run.metrics(), run.predictions()
    rows = run.read_json("run.json:clients").values()
    assert sum(row["test-examples"] for row in rows) == 100
    for name, held in judged.sets.items():
        assert numbers[f"{name}-coverage"] == held[np.arange(100), labels].mean()
        assert numbers[f"{name}-size"] == held.sum() / 100
    for name in ("accuracy", "negative-log-likelihood", "conformal-coverage", "conformal-size"):
        total = sum(row["test-examples"] * row[f"global-{name}"] for row in rows)
        assert total / 100 == pytest.approx(numbers[name])
        assert f"clients-global-{name}" in numbers
    assert set(judged.sets) == set(whole.predictions()[0].sets) == {"conformal", BY_CLASS}


def test_masked_sums_are_the_sums_of_what_clients_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, added, measure = [], asked_for(monkeypatch), SumsRound.measure
    monkeypatch.setattr(SumsRound, "measure", lambda *a: sent.append(measure(*a)) or sent[-1])
    make_run(VALUES, 3, tmp_path / "masked", exchange="masked")
    assert len(added) == 3
    for number, total in enumerate(added):
        expected = np.sum(sent[3 * number : 3 * number + 3], axis=0)
        np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-4)


def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets what is folded in each message of sums."""
    found, fold = [], SumsRound.fold
    monkeypatch.setattr(SumsRound, "fold", lambda *a: found.append(a[2]) or fold(*a))
    return found


def test_a_run_that_is_over_is_closed_in_another_way_also_when_that_is_killed(
    whole: RunFolder, plain: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rounds are not made again, nor those of sums."""
    assert digests(plain) == digests(whole)
    assert not plain.holds("closing.npz")
    shutil.copytree(plain.path, tmp_path / "run")
    save, asked = Snapshots.save, asked_for(monkeypatch)
    for killed_after in (1, 2):

        def stop(snapshots: Snapshots, number: int, arrays: Any, last: int = killed_after) -> None:
            save(snapshots, number, arrays)
            if snapshots.folder.name == closing.CLOSING and number == last:
                raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(Snapshots, "save", stop)
            with pytest.raises(KilledError):
                make_run(VALUES, 3, tmp_path / "run", resume=True)
        assert len(asked) == killed_after
    run = make_run(VALUES, 3, tmp_path / "run", resume=True)
    assert len(asked) == run.metrics()["closing-rounds-made"] == 3
    for name, value in found(whole).items():
        np.testing.assert_array_equal(found(run)[name], value)
    assert run.metrics() == whole.metrics()
    assert run.rounds() == plain.rounds()
    assert run.config()["closing"] == VALUES["closing"]


def test_a_run_that_is_closed_already_keeps_its_sums_unless_settings_or_code_differ(
    whole: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    asked = asked_for(monkeypatch)

    def close() -> tuple[int, int]:
        """Return the rounds of sums asked for, and the lines that say that they are anew."""
        asked.clear()
        changes = {"closing": "feature-density", "corruptions": "none"}
        make_run(VALUES, 3, tmp_path / "run", resume=True, **changes)
        return len(asked), capsys.readouterr().out.count("taken anew")

    assert close() == (2, 1)
    assert close() == (0, 0)
    monkeypatch.setattr(closing, "code_digest", lambda: "another")
    assert close() == (2, 1)


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("outgoing", {"outgoing": "clip+noise", "weighting": "equal", "round-retries": 0}),
        ("shared", {"shared": "body", "evaluated-by": "clients"}),
        ("conformal-alpha", {"conformal-alpha": 1.0}),
        ("closing", {"closing": "bayesian-heat"}),
        ("closing", {"closing": "bayesian-head+bayesian-head"}),
        ("none", {"closing": "feature-density+none"}),
        ("density-features", {"density-features": "all"}),
    ],
)
def test_what_does_not_go_together_is_refused(key: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=key):
        resolve({"dataset": "digits", **VALUES, **changes})


def test_an_alpha_below_what_held_back_examples_can_tell_is_refused(tmp_path: Path) -> None:
    values = {"dataset": "digits", **VALUES, "output-dir": str(tmp_path)}
    check_before_start(resolve(values), 3)
    with pytest.raises(ConfigurationError, match="conformal-alpha"):
        check_before_start(resolve({**values, "conformal-alpha": 0.001}), 3)
    with pytest.raises(ConfigurationError, match="conformal-alpha"):
        make_run(VALUES, 3, tmp_path / "run", conformal_alpha=0.001)
    assert not RunFolder(tmp_path / "run").rounds()
    # With data of their own, of which 6, 8 and 6 are held back.
    nodes = Federation({0: 0, 1: 1, 2: 2}, {0: 30, 1: 40, 2: 30})
    digits = load_dataset("digits")
    few = resolve({**values, "conformal-alpha": 1 / 21})
    divide(few, digits, nodes)
    with pytest.raises(ConfigurationError, match="20 examples"):
        divide(few.replace(conformal_alpha=1 / 22), digits, nodes)
