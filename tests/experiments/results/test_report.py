"""Reports: one HTML page of a run or of a study, as a browser shows it."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, sem
from sklearn.metrics import roc_auc_score

from bfl.commands.main import main
from bfl.errors import DataError
from bfl.evaluation.metrics.scores import Accuracy, NegativeLogLikelihood
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.regression import Mixtures
from bfl.experiments.results.figures import FIGURES
from bfl.experiments.results.monitoring import COLLAPSED, collapsed_at_the_end, weaknesses
from bfl.experiments.results.report import run_report
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import write_owners
from bfl.experiments.results.table import three_digits
from bfl.experiments.studies.claims import study_report
from bfl.experiments.studies.results import open_study

sys.path.insert(0, str(Path(__file__).resolve().parent))

from test_figures_and_tables import CONFIG, make_run

ROOT = Path(__file__).resolve().parents[3]

FRAMES = """<title></title>
<iframe srcdoc="{page}" style="width:1200px; border:0"></iframe>
<iframe srcdoc="{page}" style="width:480px; border:0"></iframe>
<script>
onload = () => document.title = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, seen = [...page.querySelectorAll("figure svg")];
    const shown = seen.filter(svg => svg.getBoundingClientRect().height > 50);
    return [page.documentElement.scrollWidth <= frame.clientWidth, shown.length].join(":");
}}).join(" ");
</script>"""
"""A report at the widths of a screen and of a telephone: does it fit, how many figures show?"""


@pytest.mark.slow
def test_the_report_is_one_page_with_every_figure(tmp_path):
    run = make_run(tmp_path, "run")
    alone = {"accuracy": 0.5, "difference": -0.25, "difference-interval": [-0.5, -0.125]}
    federation = {"accuracy": 0.25, "interval": [0.125, 0.375], "examples": 300}
    local = {f"A hospital with a long name {number}": alone for number in range(3)}
    run.write_json("run.json:baselines", {"federation": federation, "local": local})
    page = run_report(run)
    assert "−0.250 (−0.500 to −0.125)" in page
    drawn = set(re.findall(r'<figure id="([^"]+)"', page))
    assert drawn == set(FIGURES) - {"predicted-numbers"}  # those of regressions
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", page), "it loads nothing"
    assert CONFIG["partition"] in page
    [meaning] = set(re.findall(r'<abbr title="([^"]+)">expected-calibration-error</abbr>', page))
    assert page.count(f"<td>ECE, expected-calibration-error</td><td>{meaning}</td>") == 1
    predictions, labels = run.predictions()
    right, likelihood = (m().values(predictions, labels) for m in (Accuracy, NegativeLogLikelihood))
    ends = binomtest(int(right.sum()), len(labels)).proportion_ci(method="wilson")
    assert f"{three_digits(ends.low)} to {three_digits(ends.high)}" in page
    assert f"± {three_digits(float(sem(likelihood)))}" in page
    shows(page, len(drawn), tmp_path)


@pytest.mark.slow
def test_the_report_of_a_study_has_its_claims_and_figures(tmp_path):
    page = study_report(open_study(ROOT / "docs/results/fischer2024-table2-fashion-mnist"))
    assert re.findall(r'<figure id="([^"]+)"', page) == ["claims", "figure-2"]
    assert page.count("<td>open</td>") == 44
    assert "6 seeds cannot carry 28 claims; 11 can" in page
    assert "iid: WS &gt; NWA" in page
    for part in ("<td>dataset</td><td>fashion-mnist</td>", "seeds 0, 1", "<td>tensorflow</td>"):
        assert part in page
    shows(page, 2, tmp_path)


def shows(page, figures, folder):
    """Assert that a browser shows a page without an error, at two widths; where there is one."""
    if not (chromium := shutil.which("chromium")):
        return
    (folder / "page.html").write_text(FRAMES.format(page=escape(page)), encoding="utf-8")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run(
        [chromium, *options, "--dump-dom", f"file://{folder}/page.html"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr
    assert f"<title>true:{figures} true:{figures}</title>" in done.stdout


def test_a_report_shows_metrics_of_numbers_and_overwrites_no_other_file(tmp_path, capsys):
    """And what users name is no markup in it."""
    numbers = {"root-mean-squared-error": 1.5, "interval-coverage": 0.875, "seconds": 3.0}
    script = "<script>alert(1)</script>"
    folder = RunFolder.create(tmp_path, "run", {**CONFIG, "partition": script}, {})
    for number in (1, 2):
        folder.append_round({"round": number, "seconds": 1.0, "accuracy": 0.5})
    folder.write_metrics(numbers)
    page = run_report(folder)
    assert '<figure id="learning-curve"' in page
    assert script not in page
    assert re.findall(r"<b>([^<]+)</b>", page) == ["1.50", "0.875"]
    plain = re.sub("</?abbr[^>]*>", "", page)
    better = dict(re.findall(r"<td>([^<]+)</td><td[^>]*>[^<]+</td><td>(\w*)</td>", plain))
    assert better == {**dict.fromkeys(numbers, ""), "root-mean-squared-error": "lower"}
    (tmp_path / "notes.md").write_text("mine")
    for options in (["--output", "x"], ["--to", str(tmp_path / "notes.md")], ["--only", "a"]):
        assert main(["report", str(folder.path), *options]) == 2
        assert options[0] in capsys.readouterr().err
    assert (tmp_path / "notes.md").read_text() == "mine"
    assert main(["report", str(folder.path), "--to", str(tmp_path / "sent.html")]) == 0
    assert (tmp_path / "sent.html").read_text() == page


def test_a_report_says_how_far_numbers_are_known(tmp_path):
    folder = RunFolder.create(tmp_path, "run", CONFIG, {})
    random = np.random.default_rng(0)
    targets = random.normal(3.0, 2.0, 400)
    mixtures = Mixtures(random.normal(3.0, 1.0, (5, 400)), random.gamma(9.0, 0.5, (5, 400)))
    folder.write_arrays("predictions.npz", {"targets": targets, **mixtures.arrays()})
    numbers = mixtures.metrics(targets)
    folder.write_metrics(numbers)
    tiles = dict(re.findall(r"<b>([^<]+)</b><div[^>]*>([^<]+)", run_report(folder)))
    covered = binomtest(round(400 * numbers["interval-coverage"]), 400)
    ends = covered.proportion_ci(method="wilson")
    shown = tiles[three_digits(numbers["interval-coverage"])]
    assert f"{three_digits(ends.low)} to {three_digits(ends.high)}" in shown
    for name, value in numbers.items():
        if name != "interval-coverage":
            means = [
                mixtures.take(at).metrics(targets[at])[name]
                for at in (random.integers(0, 400, 400) for _ in range(200))
            ]
            said = float(tiles[three_digits(value)].removeprefix("± "))
            assert said == pytest.approx(np.std(means), rel=0.25)


NOBODYS = {"class_counts": [], "sha256": "12"}


@pytest.mark.parametrize("column", ["clinic", "client"])
def test_a_report_says_when_on_how_much_data_and_has_a_line_a_site(tmp_path, column):
    times = {"started": "2026-05-01T12:00:00+00:00", "ended": "2026-05-02T13:00:05+00:00"}
    folder = RunFolder.create(tmp_path, "run", {**CONFIG, "site-column": column}, times)
    held = {**NOBODYS, "num_examples": [900, 152], "names": ["Basel", "Genf"]}
    folder.write_json("run.json:partition", held)
    folder.write_json("run.json:clients", {"1": {"test-examples": 7, "global-accuracy": 2 / 7}})
    answers = dict.fromkeys(("targets", "means", "variances"), np.ones((1, 20)))
    folder.write_arrays("predictions.npz", {**answers, "targets": np.zeros(20)})
    folder.write_metrics({"accuracy": 1.0})
    for number in (1, 2):
        lost = [{"client": 0, "name": "Basel", "reason": "failed"}]
        record = {"clients": 1, "clients-left-out": lost, "per-client": [{"client": 1}]}
        record["per-client"] += [{"client": 0, "weight": 0.25}] if number == 1 else []
        folder.append_round({"round": number, "seconds": 1.0, **record})
    page = run_report(folder)
    counts = re.findall(r"([\d,]+) (training|test) examples", page)
    assert counts == [("1,052", "training"), ("20", "test")]
    assert f"2 sites of the column {column}" in page
    assert "2026-05-01 12:00:00 UTC" in page
    assert "1 day, 1:00:05" in page
    table = page[page.index("<caption>By ") :]
    cells = [re.findall(r"<td[^>]*>([^<]*)", row) for row in table.split("<tr>")[2:4]]
    assert cells[0] == ["Basel", "900", "–", "–", "1", "rounds 1, 2: failed"]
    low, high = map(three_digits, binomtest(2, 7).proportion_ci(method="wilson"))
    assert cells[1] == ["Genf", "152", "7", f"{three_digits(2 / 7)} ({low} to {high})", "2", "–"]
    assert "rounds 1, 2 without Basel (failed)" in page[: page.index("<h2>")]
    assert "conflation" in page
    assert "dirichlet" not in page


def test_nodes_with_data_of_their_own_are_no_partition(tmp_path):
    folder = RunFolder.create(tmp_path, "run", {**CONFIG, "partition": "iid"}, {})
    folder.write_json("run.json:data", {"test": "12"})
    held = {**NOBODYS, "num_examples": [9, None], "names": ["<b>", "Genf"]}
    folder.write_json("run.json:partition", held)
    measured = {"client": 1, "test-accuracy": 0.5, "test-examples": 10}
    folder.append_round({"round": 1, "seconds": 1.0, "per-client": [measured]})
    counts = {"positives": 4, "right-positives": 1, "right-negatives": 5}
    final = {"test-examples": 10, **counts, "global-accuracy": 0.7}
    folder.write_json("run.json:clients", {"1": final})
    folder.write_metrics({"accuracy": 1.0})
    page = run_report(folder)
    assert "2 sites with own data" in page
    assert "iid" not in page
    assert "few training examples: &lt;b&gt; (9)" in page
    assert "0.500 (0.237 to 0.763)" in page, "after its own training"
    final = "0.700 (0.397 to 0.892)", ">0.600<", "1 of 4", "5 of 6", "Genf (6 against 6 of 10)"
    assert all(text in page for text in final)


def test_two_classes_have_sensitivity_specificity_and_an_auroc(tmp_path):
    folder = RunFolder.create(tmp_path, "run", CONFIG, {})
    random = np.random.default_rng(0)
    labels, risk = random.integers(0, 2, 60), random.integers(1, 20, 60) / 20
    predictions = PredictionStatistics.of([np.stack([1 - risk, risk], axis=1)]).result()
    folder.write_predictions(predictions, labels)
    accuracy = float(np.mean(predictions.predicted == labels))
    before = {"held-back-nll-before": 2.0, "before-closing-accuracy": 0.875}
    folder.write_metrics({"accuracy": accuracy, "held-back-nll": 1.0, **before})
    write_owners(folder, [np.arange(20), None, np.arange(20, 60)], 60)
    own = {"accuracy": 0.5, "examples": 20, "difference": 0.1, "difference-interval": [0.05, 0.15]}
    local = {"A": {"accuracy": 0.5, "own": own}}
    folder.write_json("run.json:baselines", {"federation": {"accuracy": 0.5}, "local": local})
    folder.write_json("run.json:clients", {str(client): {"test-examples": 2} for client in (0, 2)})
    folder.write_json("run.json:partition", {"names": ["A", "B"]})
    page = run_report(folder)
    plain = re.sub("</?abbr[^>]*>", "", page)
    right, first = predictions.predicted == labels, labels[:20]
    usual = max(first.mean(), 1 - first.mean())
    hits = [f"{right[:20][first == label].sum()} of {(first == label).sum()}" for label in (1, 0)]
    row = plain[plain.index("<caption>By client") :].split("<tr>")[2]
    gap, *of_classes = re.findall(r"<td[^>]*>([^<]*)", row)[3:7]
    assert of_classes == [three_digits(usual), *hits]
    ends = binomtest(int(first.sum()), 20).proportion_ci(method="wilson")
    gaps = [risk[:20].mean() - share for share in (first.mean(), ends.high, ends.low)]
    assert gap.replace("−", "-") == "{:+.3f} ({:+.3f} to {:+.3f})".format(*gaps)
    sure = np.maximum(risk, 1 - risk)[:20] >= 0.9
    assert f"<td>{(sure & ~right[:20]).sum()} of {sure.sum()}</td>" in page
    most = np.bincount(first).max()
    assert f"class at A ({right[:20].sum()} against {most} of 20), client 2 (" in page
    assert "<td>12 of 20</td><td>10 of 20</td><td>+0.100 (+0.050 to +0.150)</td>" in page
    cards = dict(re.findall(r'"faint">([^<]+)</span><b>([^<]+)', plain))
    for name, label in (("sensitivity: 1", 1), ("specificity: 0", 0)):
        assert cards[name] == three_digits(float(right[labels == label].mean()))
    area, positive = float(roc_auc_score(labels, risk)), labels.sum()
    assert cards["AUROC"] == three_digits(area)
    first, second = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
    square = area * (1 - area) + (positive - 1) * first + (59 - positive) * second
    half = 1.96 * np.sqrt(square / (positive * (60 - positive)))  # Hanley and McNeil (1982)
    assert f"95 %: {three_digits(area - half)} to {three_digits(area + half)}" in plain


def test_what_is_weak_stands_on_top_and_what_columns_hold_nowhere(tmp_path):
    given = {"table-columns": "age:54.5:9.25", "dataset": "table:/home/jo doe/a.csv"}
    folder = RunFolder.create(tmp_path, "run", CONFIG, {}, given)
    labels = np.repeat([1, 0], [60, 40])
    certain = np.tile([0.02, 0.98], (100, 1))
    folder.write_predictions(PredictionStatistics.of([certain, certain]).result(), labels)
    folder.append_warning("round 1: the epistemic uncertainty has collapsed: it is 0")
    for number, loss in ((1, 0.5), (2, 2.5)):
        record = {"seconds": 1.0, "accuracy": 0.5, "negative-log-likelihood": loss}
        folder.append_round({"round": number, **record})
    spread = {"mean-epistemic": 0.0, "mean-aleatoric": 0.04, "ood-grey-unfamiliar-share": 0.25}
    folder.write_json("run.json:foreign", {"sources": {"grey": {"examples": 9}}})
    numbers = {"accuracy": 0.6, "negative-log-likelihood": 1.6}
    folder.write_metrics({**numbers, **spread})
    found = list(weaknesses(folder))
    parts = (
        *("has collapsed", "always to say the most frequent", "by 0.38"),
        *("of 100 predictions of a confidence from 0.9 on, 40 are wrong", "equal probabilities"),
        *("since round 1, the test NLL has risen from 0.500 to 2.50", "grey (0.750)"),
    )
    assert all(part in text for part, text in zip(parts, found, strict=True))
    even = np.tile([0.38, 0.62], (100, 1))  # more than 0.6, which chance gives
    folder.write_predictions(PredictionStatistics.of([even, even]).result(), labels)
    folder.write_json("run.json", {"given": given, "environment": {}})
    folder.write_rounds([])
    folder.write_metrics({"accuracy": 0.6})
    assert list(weaknesses(folder)) == [found[1]]
    assert not re.search(r"54.5|home|doe\b", run_report(folder))
    one_class = np.ones(100, np.int64)
    for truth, wrong, weak in ((labels, 38, True), (labels, 10, False), (one_class, 0, False)):
        answers = np.where(np.arange(100) < 100 - wrong, truth, 1 - truth)
        right = PredictionStatistics.of([np.eye(2)[answers]] * 2).result()
        folder.write_predictions(right, truth)
        assert any("always to say" in text for text in weaknesses(folder)) == weak
    folder.write_arrays("closing.npz", {"familiarity-counts": np.full(4, 100.0)})
    for strange in (2, 20):
        familiar = np.repeat([0.001, 0.5], [strange, 100 - strange])
        folder.write_predictions(replace(right, familiarity=familiar), one_class)
        assert any("are unlike" in text for text in weaknesses(folder)) == (strange == 20)
    for count in (9, 10):
        sure = PredictionStatistics.of([certain[:count]] * 2).result()
        folder.write_predictions(sure, np.arange(count) % 2)
        write_owners(folder, [np.arange(count)], count)
        found = " ".join(weaknesses(folder))
        assert [part in found for part in ("from 0.9 on", "too high")] == [count == 10] * 2


@pytest.mark.parametrize("numbers", [False, True])
def test_a_collapse_counts_if_it_holds_at_the_end(tmp_path, numbers):
    """By the final predictions, and the scales of the last round; for classes and numbers."""
    folder = RunFolder.create(tmp_path, "run", CONFIG, {})
    folder.append_warning(f"round 1: {COLLAPSED}: it is 0")
    if numbers:
        answers = dict.fromkeys(("means", "variances"), np.ones((2, 20)))
        folder.write_arrays("predictions.npz", {**answers, "targets": np.ones(20)})
    else:
        spread = np.random.default_rng(0).dirichlet(np.ones(3), (2, 20))
        predictions = PredictionStatistics.of(spread).result()
        folder.write_predictions(predictions, predictions.predicted)
    for epistemic, at_floor, holds in ((0.5, 0.9, True), (0.5, 0.1, False), (0.0, 0.1, True)):
        folder.write_rounds([{"round": 1, "seconds": 1.0, "fraction-at-scale-floor": at_floor}])
        measured = {"mean-epistemic": epistemic, "mean-aleatoric": 0.5}
        folder.write_metrics({"accuracy": 0.5, "root-mean-squared-error": 1.0, **measured})
        assert collapsed_at_the_end(folder) == holds
        assert "nothing was warned of" not in run_report(folder)
    private = RunFolder.create(tmp_path, "private", CONFIG, {})
    private.write_json("run.json:partition", {"whole-sha256": "12"})
    private.write_metrics({"accuracy": 0.5})
    private.write_rounds([{"round": number, "seconds": 1.0} for number in (1, 2)])
    assert "nothing was warned of" not in run_report(private), "its warnings are not kept"


def test_a_run_that_is_not_over_has_no_report(tmp_path):
    folder = RunFolder.create(tmp_path, "run", CONFIG, {})
    with pytest.raises(DataError, match=f"--resume {folder.path}$"):
        run_report(folder)
    folder.append_round({"round": 1})
    with pytest.raises(DataError, match=r"--resume .* --run-config rounds=1,"):
        run_report(folder)
