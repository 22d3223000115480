"""Confusion matrix, uncertainty of errors, examples and client curves: what they show is true."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.errors import DataError
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results import RunFolder, write_evaluation
from bfl.experiments.results.figures import draw_all, figures
from bfl.experiments.results.figures.federation import measured_by_clients
from bfl.experiments.results.figures.style import COLORS, INK, drawable, names_of_classes
from bfl.experiments.results.summary import BY, MOST, read_examples, write_examples

NAMES = ["cat", "dog", "a $very$ long name"]
EXAMPLES = 60


def evaluated(folder: RunFolder, examples: int = EXAMPLES) -> tuple[Any, Any, Any]:
    """Write an evaluation of random predictions; return them with their labels and images."""
    random = np.random.default_rng(3)
    samples = random.dirichlet(np.ones(3) * 0.5, size=(4, examples))
    predictions = PredictionStatistics.of(samples).result()
    labels = random.integers(0, 3, examples)
    images = random.integers(0, 256, (examples, 6, 5, 1), dtype=np.uint8)
    write_evaluation(folder, predictions, labels)
    folder.write_json("run.json:network", {"class-names": NAMES})
    write_examples(folder, predictions, images, labels)
    return predictions, labels, images


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "run", {"strategy": "nwa"}, {})


def draw(name: str, folder: RunFolder) -> Any:
    figure = figures.create(name).draw(folder)
    assert figure is not None
    figure.canvas.draw()  # text that cannot be set in type fails here
    return figure


def test_the_confusion_matrix_counts_examples(folder: RunFolder) -> None:
    predictions, labels, _ = evaluated(folder)
    true = np.asarray(labels)[:, None] == range(3)
    expected = true.T.astype(int) @ (predictions.predicted[:, None] == range(3))
    axes, _ = draw("confusion-matrix", folder).axes
    shown = {(text.get_position(), int(text.get_text())) for text in axes.texts}
    assert shown == {((p, t), n) for (t, p), n in np.ndenumerate(expected) if n}
    np.testing.assert_allclose(axes.images[0].get_array().sum(axis=1), 1.0)
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES
    right = int(np.trace(expected))
    assert f"{right} of 60 test examples right" in axes.figure.get_suptitle()


ODD_NAMES = (
    ["_a$b", "$\\frac{$", "x_{^"],
    ["日本", "日本語", "🐈 cat"],
    ["قط", "a\nb\tc", "\u202e"],
    ["a long scientific name, " * 9 + end for end in "abc"],
)


@pytest.mark.slow
@pytest.mark.parametrize("names", ODD_NAMES, ids=["mathematics", "other scripts", "marks", "long"])
def test_class_names_of_any_script_and_length_are_drawn_and_told_apart(
    folder: RunFolder, names: list[str]
) -> None:
    evaluated(folder)
    folder.write_json("run.json:network", {"class-names": names})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(draw_all(folder)) >= 4
    for longest in (10, 24):
        shown = names_of_classes(names, longest)
        assert len(set(shown)) == len(names)
        assert max(map(len, shown)) <= longest
        assert all("\n" not in name and not name.startswith("_") for name in shown)
    assert drawable("é μ²") == "é μ²"


def test_a_confusion_matrix_without_names_and_of_a_class_without_examples(
    folder: RunFolder,
) -> None:
    predictions = PredictionStatistics.of([[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]]]).result()
    write_evaluation(folder, predictions, [0, 1])
    axes, _ = draw("confusion-matrix", folder).axes
    assert axes.images[0].get_array()[2].tolist() == [0, 0, 0]


def test_right_and_wrong_predictions_are_told_apart(folder: RunFolder) -> None:
    predictions, labels, _ = evaluated(folder)
    wrong = predictions.predicted != labels
    figure = draw("uncertainty-of-errors", folder)
    shown = [u for u in uncertainties.classes() if u.retention]
    assert [axes.get_xlabel() for axes in figure.axes] == [u.name.replace("-", " ") for u in shown]
    for axes, uncertainty in zip(figure.axes, shown, strict=True):
        values = uncertainty().measure(predictions)
        apart = values[wrong][:, None] - values[~wrong]
        area = np.mean(apart > 0) + np.mean(apart == 0) / 2
        assert axes.get_title("right") == f"AUROC {area:.3f}"
    _, names = figure.axes[0].get_legend_handles_labels()
    assert names == [f"right ({int((~wrong).sum())})", f"wrong ({int(wrong.sum())})"]


@pytest.mark.parametrize(("labels", "said"), [([0, 1], "no errors"), ([1, 0], "only errors")])
def test_nothing_but_right_or_wrong_predictions(
    labels: list[int], said: str, folder: RunFolder
) -> None:
    predictions = PredictionStatistics.of([[[1.0, 0.0], [0.0, 1.0]]]).result()
    write_evaluation(folder, predictions, labels)
    assert draw("uncertainty-of-errors", folder).axes[0].get_title("right") == said


def test_examples_are_the_most_and_the_least_certain(folder: RunFolder) -> None:
    predictions, labels, images = evaluated(folder)
    order = np.argsort(uncertainties.create(BY).measure(predictions), kind="stable")
    certain, uncertain = read_examples(folder)
    np.testing.assert_array_equal(certain.positions, order[:MOST])
    np.testing.assert_array_equal(uncertain.positions, order[-MOST:])
    for examples in (certain, uncertain):
        np.testing.assert_array_equal(examples.images, images[examples.positions])
        np.testing.assert_array_equal(examples.labels, labels[examples.positions])
        predicted = predictions.predicted[examples.positions]
        np.testing.assert_array_equal(examples.predicted, predicted)
    assert certain.uncertainty.max() <= uncertain.uncertainty.min()
    upper, lower = draw("certain-images", folder).axes
    np.testing.assert_array_equal(upper.images[0].get_array(), images[order[0]][..., 0])
    np.testing.assert_array_equal(lower.images[-1].get_array(), images[order[-1]][..., 0])
    caption = upper.get_xticklabels()[0]
    shown = [NAMES[int(values[order[0]])] for values in (predictions.predicted, labels)]
    short = [name if len(name) <= 10 else f"{name[:9]}…" for name in shown]
    assert caption.get_text().split("\n")[:2] == [short[0], f"({short[1]})"]
    for axes, examples in ((upper, certain), (lower, uncertain)):
        expected = [INK if r else COLORS[1] for r in examples.predicted == examples.labels]
        assert [tick.get_color() for tick in axes.get_xticklabels()] == expected


@pytest.mark.parametrize(("examples", "of_each"), [(1, 0), (2, 1), (3, 1), (15, 7)])
def test_few_test_images(examples: int, of_each: int, folder: RunFolder) -> None:
    evaluated(folder, examples)
    certain, uncertain = read_examples(folder)
    assert len(certain.positions) == len(uncertain.positions) == of_each
    assert not set(certain.positions) & set(uncertain.positions)
    assert (figures.create("certain-images").draw(folder) is None) == (of_each == 0)


def test_corrupt_examples_are_named(folder: RunFolder) -> None:
    evaluated(folder)
    folder.write_arrays("predictions.npz", {"example-images": np.arange(3)})
    with pytest.raises(DataError, match=r"predictions\.npz is corrupt"):
        figures.create("certain-images").draw(folder)


def clients(count: int, number: int, **more: float) -> list[dict[str, Any]]:
    return [
        {"client": k, "weight": 1 / count, "train-seconds": k + number, **more}
        for k in range(count)
    ]


def test_client_curves_have_a_line_for_each_client(folder: RunFolder) -> None:
    """Also where clients are sampled, and where a value is missing or not finite."""
    folder.append_round({"round": 1, "per-client": clients(3, 1)})
    folder.append_round({"round": 2, "per-client": clients(3, 2)[1:]})
    folder.append_round(
        {"round": 3, "per-client": clients(3, 3, **{"train-divergence": float("nan")})}
    )
    rounds, ids, measured = measured_by_clients(folder)
    assert (rounds, ids) == ([1, 2, 3], [0, 1, 2])
    expected = [[k + n if (n, k) != (2, 0) else np.nan for k in ids] for n in rounds]
    np.testing.assert_array_equal(measured["train-seconds"], expected)
    assert np.isnan(measured["train-divergence"]).all()
    figure = draw("client-curves", folder)
    assert [axes.get_ylabel() for axes in figure.axes] == ["weight (%)", "seconds"]
    lines = figure.axes[1].lines
    assert [line.get_label() for line in lines] == ["client 0", "client 1", "client 2"]
    assert list(lines[0].get_xdata()) == [1, 3]


def test_many_clients_are_a_median_and_bands(folder: RunFolder) -> None:
    for number in (1, 2):
        folder.append_round({"round": number, "per-client": clients(31, number)})
    _, axes = draw("client-curves", folder).axes
    (median,) = axes.lines
    assert list(median.get_ydata()) == [16, 17]
    assert len(axes.collections) == 2


def test_both_models_of_clients_that_judge_have_a_panel_each(folder: RunFolder) -> None:
    """Yang et al. (2023), Figs. 5 to 7; only rounds in which clients have judged have points."""
    for number in (1, 2, 3):
        judged = {"personal-accuracy": 0.1 * number, "meme-accuracy": 0.2} if number != 2 else {}
        folder.append_round({"round": number, "per-client": clients(2, number, **judged)})
    *_, personal, meme = draw("client-curves", folder).axes
    assert personal.get_ylabel() == "personal model's accuracy (%)"
    assert meme.get_ylabel() == "meme's accuracy (%)"
    for axes, values in ((personal, [0.1, 0.3]), (meme, [0.2, 0.2])):
        assert len(axes.lines) == 2
        for line in axes.lines:
            assert list(line.get_xdata()) == [1, 3]
            assert list(line.get_ydata()) == pytest.approx(values)


def test_rounds_of_older_runs_and_corrupt_ones(folder: RunFolder) -> None:
    folder.append_round({"round": 1})
    assert figures.create("client-curves").draw(folder) is None
    folder.append_round({"round": 2, "per-client": [{"weight": 1.0}]})
    with pytest.raises(DataError, match=r"rounds\.jsonl, round 2: per-client is corrupt"):
        figures.create("client-curves").draw(folder)
