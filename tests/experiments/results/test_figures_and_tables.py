"""Figures are drawn from a run folder alone, and the same data give the same bytes."""

import doctest
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image, rc_context
from matplotlib.text import Text
from rich.console import Console
from scipy.stats import binomtest, norm

from bfl.errors import DataError
from bfl.evaluation.prediction import PredictionStatistics
from bfl.experiments.results import table
from bfl.experiments.results.figures import FIGURES, draw, draw_all, style
from bfl.experiments.results.figures.rounds import measured_by_clients
from bfl.experiments.results.figures.style import short_names
from bfl.experiments.results.run_folder import CORRUPTIONS, PREDICTIONS, RunFolder
from bfl.experiments.results.summary import (
    by_strength,
    predicted_by_strength,
    write_evaluation,
    write_foreign,
)
from bfl.experiments.results.table import results_table
from bfl.posteriors import Manifest, Parameter
from bfl.posteriors.posterior import Posterior

CONFIG = {
    "dataset": "npz:/a/folder/images.npz",
    "model": "resnet20",
    "inference": "flipout",
    "clients": 10,
    "seed": 3,
    "evaluate-mc-samples": 5,
    "strategy": "weighted-conflation",
    "weighting": "train-size",
    "partition": r"dirichlet-$\frac$",  # no valid mathematics: it must be drawn as it stands
    "calibration-bins": 10,
}
COUNTS = [[30, 0, 5, 1], [2, 60, 0, 90]]
CONFIDENCES = {kind: {"right": [1.0] * 9 + [5.0], "wrong": [3.0] * 10} for kind in "ba"}


def make_run(path, name, samples=4, config=CONFIG, rounds=12):
    random = np.random.default_rng(0)
    probability = random.dirichlet(np.ones(4) * 0.4, size=300)
    noise = random.dirichlet(np.ones(4) * 0.4, size=(samples, 300))
    predictions = PredictionStatistics.of(0.7 * probability + 0.3 * noise).result()
    labels = [random.choice(4, p=row) for row in probability]
    folder = RunFolder.create(path, name, config, {})
    folder.write_json("run.json:partition", {"class_counts": COUNTS, "num_examples": [36, 152]})
    folder.write_json("run.json:ensemble", {"confidences": CONFIDENCES})
    for number in range(1, rounds + 1):
        entry = {"round": number, "seconds": 0.5, "clients": 10}
        if number % 3 == 0:
            entry |= {"accuracy": 1 - 1 / number, "negative-log-likelihood": 2 / number}
            entry |= {"mean-epistemic": 0.1 / number}
        measured = {"train-negative-log-likelihood": 1 / number, "train-divergence": 9.0}
        entry["per-client"] = [{"client": k, "weight": 0.5, **measured} for k in range(2)]
        folder.append_round(entry)
    images = random.integers(0, 256, (300, 5, 4, 3), dtype=np.uint8)
    predictions = replace(predictions, familiarity=random.random(300))
    numbers = write_evaluation(folder, predictions, labels, config)
    folder.write_metrics(numbers)
    weight = Parameter("dense/kernel", (20, 30), True, "he-normal")
    spread = Posterior(np.zeros(600), random.gamma(1.0, 0.01, 600))
    folder.write_posterior(spread, Manifest((weight,)))
    shown = {"": predictions}
    write_foreign(folder, shown, [("rotated", True, shown)], config)
    grey = images[..., :1]
    of_noise = predicted_by_strength(("noise", "blur"), grey, predictions, lambda _: predictions)
    folder.write_json(CORRUPTIONS, by_strength(of_noise, labels, config))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs"), "run")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "run", CONFIG, {})


def numbers_run(path, config=CONFIG):
    """Return a run of a regression, whose deviations are half of what they should be."""
    random = np.random.default_rng(0)
    folder = RunFolder.create(path, "numbers", config, {})
    targets = random.normal(50.0, 20.0, 3000)
    means = targets + random.normal(0.0, 2.0, (1, 3000))
    held = {"means": means, "variances": np.ones((1, 3000)), "targets": targets}
    folder.write_arrays(PREDICTIONS, held)
    return folder


def clipped(figure):
    """Return how far, in inches, what is drawn reaches beyond the figure's edges."""
    with style.styled():
        figure.draw_without_rendering()
        drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return max(-drawn.x0, -drawn.y0, drawn.x1 - width, drawn.y1 - height)


def texts(figure):
    return " | ".join(text.get_text() for text in figure.findobj(Text) if text.get_text())


@pytest.mark.slow
def test_all_figures_are_written_readable_and_the_same_twice(run):
    first = draw_all(run)
    assert {path.stem for path in first} == FIGURES.keys() - {"predicted-numbers"}
    before = [path.read_bytes() for path in first]
    # Neither the user's own settings nor an earlier drawing show.
    with rc_context({"font.size": 20.0, "lines.linewidth": 9.0}):
        second = draw_all(run)
    assert second == first
    assert [path.read_bytes() for path in second] == before
    for path in first:
        pixels = image.imread(path)
        assert min(pixels.shape[:2]) > 400
        assert pixels[..., :3].std() > 0.05


def test_figures_name_the_run_and_their_axes_and_nothing_is_clipped(run, tmp_path):
    long = {**CONFIG, "dataset": "npz:/" + "images-of-many-hospitals-" * 4 + ".npz"}
    empty = RunFolder.create(tmp_path, "run", CONFIG, {})
    empty.append_round({"round": 1, "seconds": 1.0})
    for name in FIGURES:
        shown = numbers_run(tmp_path / name, long) if name == "predicted-numbers" else run
        figure = draw(name, shown)
        assert clipped(figure) <= 0, name
        said = texts(figure).replace("\n", " ")
        assert "resnet20 · flipout · weighted-conflation · train-size" in said
        assert r"10 clients, dirichlet-$\frac$ partition, seed 3" in said
        assert all(axes.get_ylabel() for axes in figure.axes)
        assert any(axes.get_xlabel() for axes in figure.axes)
        assert draw(name, empty) is None
    short = make_run(tmp_path, "short", samples=1, config={}, rounds=3)
    assert clipped(draw("retention-curves", short)) <= 0


def test_confidences_of_members_and_familiarity_are_drawn_right_and_wrong(run):
    drawn = draw("member-confidences", run)
    assert [axes.get_title() for axes in drawn.axes] == ["a", "b"]
    heights = [bar.get_height() for bar in drawn.axes[0].patches]
    assert heights == [*CONFIDENCES["a"]["right"], *CONFIDENCES["a"]["wrong"]]
    predictions, labels = run.predictions()
    familiar = predictions.familiarity[predictions.predicted == labels]
    line = draw("familiarity", run).axes[0].lines[1]
    shares = [(familiar <= value).mean() for value in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), shares)


def test_coverage_of_intervals_of_numbers(tmp_path):
    left, right = draw("predicted-numbers", numbers_run(tmp_path)).axes
    line = {each.get_label(): each for each in right.lines}["test examples"]
    expected = [2 * norm.cdf(norm.ppf(0.5 + p / 2) / 2) - 1 for p in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), expected, atol=0.03)
    true, mean = left.collections[-1].get_offsets().T
    assert np.corrcoef(true, mean)[0, 1] > 0.99
    bounds = np.array([segment[:, 1] for segment in left.collections[0].get_segments()])
    np.testing.assert_allclose(np.diff(bounds)[:, 0], 2 * norm.ppf(0.95), rtol=1e-4)


def test_learning_curve_shows_evaluated_rounds_with_a_finite_number_only(run, folder):
    figure = draw("learning-curve", run)
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[0].get_xdata(), [3, 6, 9, 12])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [2 / 3, 1 / 3, 2 / 9, 1 / 6])
    assert "last 0.917" in texts(figure)
    of_numbers = {"root-mean-squared-error": 0.1, "negative-log-likelihood": float("nan")}
    folder.append_round({"round": 1, **of_numbers})
    folder.append_round({"round": 2, **of_numbers, "negative-log-likelihood": 1.0})
    left, right = draw("learning-curve", folder).axes
    assert list(left.lines[0].get_xdata()) == [1, 2]
    assert left.get_ylabel() == "root mean squared error"
    assert list(right.lines[0].get_xdata()) == [2]


def test_retention_figure_shows_curves_baseline_and_oracle(run):
    left, _ = draw("retention-curves", run).axes
    lines = {line.get_label().split(" (")[0]: line for line in left.lines}
    assert {"aleatoric", "epistemic", "predictive entropy", "at random", "oracle"} <= set(lines)
    curve = run.read_json("run.json:retention")["curves"]["accuracy"]["epistemic"]
    np.testing.assert_array_equal(lines["epistemic"].get_ydata(), curve["value"])
    assert table.three_digits(curve["area"]) in lines["epistemic"].get_label()
    np.testing.assert_allclose(lines["at random"].get_ydata(), run.metrics()["accuracy"])
    assert (lines["oracle"].get_ydata() >= lines["epistemic"].get_ydata() - 0.02).all()


def test_reliability_diagram_has_the_runs_bins_and_error(run):
    figure = draw("reliability-diagram", run)
    error = table.three_digits(run.metrics()["expected-calibration-error"])
    assert f"ECE {error} (10 bins)" in texts(figure)
    lower = figure.axes[1]
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(1.0)
    predictions, labels = run.predictions()
    confidences = predictions.mean_probability.max(axis=1)
    expected, _ = np.histogram(confidences, bins=10, range=(0, 1))
    assert [int(text.get_text()) for text in lower.texts] == expected.tolist()
    rights, _ = np.histogram(confidences[predictions.predicted == labels], bins=10, range=(0, 1))
    (drawn,) = (c for c in figure.axes[0].collections if c.get_label() == "95 % interval")
    filled = np.flatnonzero(expected)
    for segment, place in zip(drawn.get_segments(), filled, strict=True):
        test = binomtest(int(rights[place]), int(expected[place]))
        ends = test.proportion_ci(method="wilson")
        np.testing.assert_allclose(segment[:, 1], [ends.low, ends.high], atol=1e-6)


def test_figures_of_clients_name_sites_and_classes(folder):
    held = {"class_counts": COUNTS, "num_examples": [36, 152], "names": ["Genf", "Basel"]}
    folder.write_json("run.json:partition", held)
    folder.write_json("run.json:network", {"class-names": ["daisy", "rose", "tulip", "thistle"]})
    clients = [{"client": k, "weight": 0.5} for k in range(3)]
    folder.append_round({"round": 1, "seconds": 1.0, "per-client": clients})
    figure = draw("partition", folder)
    axes = figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), COUNTS)
    written = {(text.get_position(), text.get_text()) for text in axes.texts}
    assert written == {((c, k), str(n)) for (k, c), n in np.ndenumerate(np.array(COUNTS)) if n}
    assert "Partition of 188 training examples" in texts(figure)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Genf", "Basel"]
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert shown == ["daisy", "rose", "tulip", "thistle"]
    held["class_counts"] = [None, COUNTS[1]]
    folder.write_json("run.json:partition", held)
    axes = draw("partition", folder).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Basel"]
    (legend,) = draw("client-curves", folder).legends
    assert [text.get_text() for text in legend.get_texts()] == ["Genf", "Basel", "client 2"]
    folder.write_json("run.json:partition", {"class_counts": np.full((100, 10), 7).tolist()})
    figure = draw("partition", folder)
    assert not figure.axes[0].texts, "too small to be read"
    assert max(figure.get_size_inches()) < 15


@pytest.mark.parametrize(
    ("figure", "section", "content"),
    [
        ("retention-curves", "retention", {"fraction": [0.5, 1.0], "curves": {}}),
        ("member-confidences", "ensemble", {"confidences": {"samples": {"right": [1.0]}}}),
        ("partition", "partition", {"class_counts": [1, 2], "num_examples": [1, 2]}),
    ],
)
def test_a_corrupt_section_is_named(folder, figure, section, content):
    folder.write_json(f"run.json:{section}", content)
    with pytest.raises(DataError, match=f"run.json:{section} is corrupt"):
        draw(figure, folder)


def rendered(content):
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(content)
    return console.file.getvalue()


def test_results_table_has_a_column_per_key():
    first = {"run": "a[bold]", "accuracy": 0.91239, "clients": 10}
    second = {"run": "b", "negative-log-likelihood": 1e-7, "clients": np.int64(3)}
    text = rendered(results_table([first, second], "Runs [all]"))
    for part in ("Runs [all]", "a[bold]", "accuracy ↑", "0.9124", "1.000e-07", "–", "10", "3"):
        assert part in text
    assert "negative-log-likelihood ↓" in text
    assert not rendered(results_table([], "Nothing")).strip()


def test_cells():
    assert table.cell("a\x1b[2J\n") == r"a\x1b[2J\n"  # a terminal would obey
    assert table.cell(0.0) == "0.0000"
    assert table.cell(float("nan")) == "nan"
    assert table.cell(np.float32(0.5)) == "0.5000"
    assert table.cell(123456.0) == "1.235e+05"
    assert doctest.testmod(table).failed == 0


CLASS_NAMES = ["cat", "dog", "a $very$ long name"]


def evaluated(folder: RunFolder) -> tuple[Any, Any]:
    """Write an evaluation of random predictions; return them with their labels."""
    random = np.random.default_rng(3)
    samples = random.dirichlet(np.ones(3) * 0.5, size=(4, 60))
    predictions = PredictionStatistics.of(samples).result()
    labels = random.integers(0, 3, 60)
    write_evaluation(folder, predictions, labels)
    folder.write_json("run.json:network", {"class-names": CLASS_NAMES})
    return predictions, labels


def test_the_confusion_matrix_counts_examples(folder: RunFolder) -> None:
    predictions, labels = evaluated(folder)
    true = np.asarray(labels)[:, None] == range(3)
    expected = true.T.astype(int) @ (predictions.predicted[:, None] == range(3))
    figure = draw("confusion-matrix", folder)
    axes, _ = figure.axes
    shown = {(text.get_position(), int(text.get_text())) for text in axes.texts}
    assert shown == {((p, t), n) for (t, p), n in np.ndenumerate(expected) if n}
    np.testing.assert_allclose(axes.images[0].get_array().sum(axis=1), 1.0)
    assert [label.get_text() for label in axes.get_yticklabels()] == CLASS_NAMES
    right = int(np.trace(expected))
    assert f"{right} of 60 test examples right" in texts(figure)


ODD_NAMES = (
    ["_a$b", "$\\frac{$", "x_{^"],
    ["a long scientific name, " * 9 + end for end in "abc"],
    ["日本", "日本語", "a\nb\tc"],
)


def test_class_names_of_any_script_and_length_are_drawn_and_told_apart(folder: RunFolder) -> None:
    evaluated(folder)
    for names in ODD_NAMES:
        folder.write_json("run.json:network", {"class-names": names})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert clipped(draw("confusion-matrix", folder)) <= 0
        for longest in (10, 24):
            shown = short_names(names, longest)
            assert len(set(shown)) == len(names)
            assert max(map(len, shown)) <= longest


def test_networks_of_points_have_no_epistemic_panel(folder: RunFolder) -> None:
    predictions = PredictionStatistics.of([[[0.9, 0.1], [0.2, 0.8]]]).result()
    write_evaluation(folder, predictions, [0, 1])
    assert "epistemic" not in texts(draw("retention-curves", folder))


def clients(count: int, number: int, **more: float) -> list[dict[str, Any]]:
    return [
        {"client": k, "weight": 1 / count, "train-seconds": k + number, **more}
        for k in range(count)
    ]


def test_client_curves_have_a_line_for_each_client(folder: RunFolder) -> None:
    """Also where clients are sampled, and where a value is missing or not finite."""
    folder.append_round({"round": 1, "per-client": clients(3, 1)})
    folder.append_round({"round": 2, "per-client": clients(3, 2)[1:]})
    of_points = {"train-divergence": 0.0, "test-accuracy": float("nan")}
    folder.append_round({"round": 3, "per-client": clients(3, 3, **of_points)})
    measured = measured_by_clients(folder)
    assert list(measured) == ["weight", "train-seconds"]
    expected = [[k + n if (n, k) != (2, 0) else np.nan for k in range(3)] for n in (1, 2, 3)]
    np.testing.assert_array_equal(measured["train-seconds"], expected)
    figure = draw("client-curves", folder)
    assert [axes.get_ylabel() for axes in figure.axes] == ["weight", "seconds"]
    lines = figure.axes[1].lines
    assert [line.get_label() for line in lines] == ["client 0", "client 1", "client 2"]
    assert list(lines[0].get_xdata()) == [1, 3]


def test_many_clients_are_grey_with_their_median(folder: RunFolder) -> None:
    for number in (1, 2):
        folder.append_round({"round": number, "per-client": clients(31, number)})
    figure = draw("client-curves", folder)
    *others, median = figure.axes[1].lines
    assert len(others) == 31
    assert list(median.get_ydata()) == [16, 17]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["median"]
    folder.append_round({"round": 3, "per-client": [{"weight": 1.0}]})
    with pytest.raises(DataError, match=r"rounds\.jsonl is corrupt"):
        draw("client-curves", folder)
