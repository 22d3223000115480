"""The table's numbers, against numbers computed by hand, and its formats."""

import csv
import io
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import STUDY, finish_run, finished_study, made_up_result, planned, scaled_study

from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, begin
from bfl.experiments.studies.pages import by_client, by_seed, comma_separated, latex, markdown
from bfl.experiments.studies.study import IN_FILE, Study
from bfl.experiments.studies.table import (
    StudyTable,
    deviation_by_images,
    mean_and_spread,
    share_step,
    study_table,
)
from bfl.posteriors.posterior import FRACTION_AT_FLOOR

ROOT = Path(__file__).resolve().parents[3]
ACCURACIES = {"flipout-ws_iid_seed-0": 0.90, "flipout-ws_iid_seed-1": 0.94}


def made(folder: Path, scale: str = "", text: str = STUDY) -> tuple[StudyFolder, Study, StudyTable]:
    """Make a study of which three runs are done, one has begun and one has failed."""
    scaled = scaled_study(folder / "files", scale, text=text)
    study = StudyFolder(folder / scaled.folder_name)
    begin(study, scaled, {})
    values = {run.name: run.values for run in scaled.runs()}
    for name, accuracy in ACCURACIES.items():
        if name in values:
            numbers = {"accuracy": accuracy, "negative_log_likelihood": accuracy / 2}
            finish_run(study, name, values[name], **numbers)
    one = "flipout-nwa_iid_seed-0"
    finish_run(study, one, values[one], accuracy=0.5, negative_log_likelihood=1.0)
    begun = planned(study, scaled)[2]
    RunFolder.create(study.runs, begun.name, begun.configuration.values, {})
    study.write("failures/flipout-nwa_dirichlet-0.5_seed-0.txt", b"it has failed")
    return study, scaled, study_table(OpenedStudy(study, scaled))


def test_means_spreads_and_differences(tmp_path: Path) -> None:
    study, scaled, found = made(tmp_path)
    ws, ws_dirichlet, nwa, nwa_dirichlet = found.frame.to_dict("records")
    # 90 and 94: mean 92, deviations −2 and 2, sample variance 8.
    assert ws["accuracy"] == pytest.approx(92.0)
    assert ws["accuracy_spread"] == pytest.approx(8**0.5)
    assert (ws["accuracy_published"], ws["accuracy_published_spread"]) == (90.5, 1.0)
    assert ws["accuracy_difference"] == pytest.approx(1.5)
    assert ws["negative-log-likelihood"] == pytest.approx(0.46)
    assert ws["negative-log-likelihood_published_spread"] is None
    assert (ws["runs_done"], ws["runs"], ws["state"]) == (2, 2, "")
    assert (nwa["runs_done"], nwa["runs"], nwa["state"]) == (1, 2, "missing")
    assert nwa["accuracy_spread"] is None, "one run has no spread"
    assert nwa["negative-log-likelihood_difference"] is None, "not published"
    assert ws_dirichlet["state"] == "begun, round 0 of 4, missing"
    assert nwa_dirichlet["state"] == "failed, missing"
    # A part of the runs makes a part of the table.
    one = OpenedStudy(study, scaled, lambda run: run.name == "flipout-ws_iid_seed-1")
    part = study_table(one).frame
    assert part[["runs_done", "runs"]].to_numpy().tolist() == [[1, 1]]
    assert part["accuracy"][0] == pytest.approx(94.0)


def test_a_standard_error_is_the_deviation_over_the_root_of_n(tmp_path: Path) -> None:
    *_, found = made(tmp_path, text='spread = "standard-error"\n' + STUDY)
    assert found.frame["accuracy_spread"][0] == pytest.approx(2.0)
    assert mean_and_spread([1.0, 2.0, 4.0], "standard-error")[1] == pytest.approx(
        ((16 + 1 + 25) / 9 / 2 / 3) ** 0.5
    )


def test_markdown_has_ours_beside_the_published(tmp_path: Path) -> None:
    text = markdown(made(tmp_path)[2])
    header, rule, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    assert header[:5] == ["model", "rule", "partition", "runs", "accuracy (%)"]
    assert rule[2:4] == ["---", "---:"]
    assert rows[0][3:] == [
        *("2 of 2", "92.00 ± 2.83 (3.84)", "90.50 ± 1.00", "+1.50"),
        *("0.460 ± 0.014", "0.300", "+0.160"),
    ]
    assert rows[2][3:] == ["1 of 2", "50.00 (7.07)", "70.00 ± 3.00", "-20.00", "1.000", "–", "–"]
    assert rows[3][3:] == [
        *("0 of 2", "failed, missing", "60.00 ± 4.00", "–", "failed, missing", "1.200", "–")
    ]


def test_every_format_says_the_scale(tmp_path: Path) -> None:
    *_, found = made(tmp_path, "rounds=0.5,seeds=1")
    said = "caled down: rounds 4 → 2, seeds 2 → 1"
    assert said in markdown(found)
    assert said in comma_separated(found)
    assert said in by_seed(found)
    assert said.replace("→", r"$\to$") in latex(found)


def test_csv_has_the_numbers_in_full(tmp_path: Path) -> None:
    *_, found = made(tmp_path)
    rows = list(csv.DictReader(io.StringIO(comma_separated(found))))
    assert [row["rule"] for row in rows] == ["WS", "WS", "NWA", "NWA"]
    assert float(rows[0]["accuracy"]) == found.frame["accuracy"][0]
    assert (rows[0]["runs_done"], rows[0]["runs"], rows[0]["scale"]) == ("2", "2", IN_FILE)
    assert rows[3]["accuracy"] == rows[3]["accuracy_difference"] == ""


def test_csv_has_a_line_a_run_and_a_client(tmp_path: Path) -> None:
    curves = ("best-accuracy", "accuracy-at-round-1", "accuracy-at-round-3")
    columns = "".join(f'[[columns]]\nmetric = "{name}"\n' for name in curves)
    found = finished_study(tmp_path, {"WS": [0.9, 0.91]}, more=columns)
    rows = list(csv.DictReader(io.StringIO(by_seed(found))))
    assert [(row["seed"], row["accuracy"]) for row in rows] == [("0", "0.9"), ("1", "0.91")]
    assert [[row[name] for name in curves] for row in rows] == [["0.1", "0.1", ""]] * 2
    assert by_client(found) == ""
    object.__setattr__(found.runs[0][1], "clients", {"3": {"global-accuracy": 0.25}})
    [row] = csv.DictReader(io.StringIO(by_client(found)))
    assert (row["client"], row["global-accuracy"], row["seed"]) == ("3", "0.25", "0")


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([8e-9, 7e-9, 6e-9], "7.0e-09 ± 1.0e-09"),
        ([7e-9, 7e-9], "7.0e-09 ± 0.000"),
        ([0.5, 0.7, 0.6], "0.600 ± 0.100"),
        ([-0.3, -0.35], "-0.325 ± 0.035"),
        ([float("inf"), 1.0], "inf"),
        ([float("nan"), 1.0], "nan"),
    ],
)
def test_numbers_are_shown_as_large_as_they_are(
    numbers: list[float], shown: str, tmp_path: Path
) -> None:
    found = finished_study(tmp_path, {"A": numbers}, "mean-epistemic")
    assert f"| {shown} |" in markdown(found)
    assert shown.replace("±", "$\\pm$") in latex(found)


def test_the_step_of_shares_is_found() -> None:
    assert share_step(frozenset(right / 360 for right in (347, 350, 359))) == 1 / 360
    curve = [float(f"{right / 10_000:.7g}") for right in (1001, 4127, 9339, 77)]
    assert share_step(frozenset(curve)) == 1 / 10_000
    assert share_step(frozenset({0.0, 1.0, float("nan")})) == 1.0
    irrational = {0.7071067812, 0.1415926536, 0.7182818285, 0.6180339887, 0.4142135624}
    assert share_step(frozenset(irrational)) == 0.0


def test_a_share_has_the_binomial_deviation_of_one_run(tmp_path: Path) -> None:
    """The made-up curves have 0.1: of 360 images and of ten, of 360."""
    frame = finished_study(tmp_path / "a", {"A": [347 / 360, 350 / 360]}).frame
    share = 697 / 720
    assert frame["accuracy_by_images"][0] == pytest.approx((share * (1 - share) / 360) ** 0.5)
    round_numbers = finished_study(tmp_path / "c", {"A": [0.5], "B": [347 / 360]}).frame
    assert round_numbers["accuracy_by_images"][0] == pytest.approx((0.25 / 360) ** 0.5)
    other = finished_study(tmp_path / "b", {"A": [0.5, 0.75]}, "negative-log-likelihood").frame
    assert other["negative-log-likelihood_by_images"][0] is None


@pytest.mark.parametrize("key", ["dataset", "test-examples"])
def test_only_runs_on_the_same_images_tell_their_number(key: str, tmp_path: Path) -> None:
    run = scaled_study(tmp_path).runs()[0]
    column, one = Column(metric="accuracy", title="a"), made_up_result(run)
    final = replace(one, metrics={"accuracy": 347 / 360})
    a_round = replace(one, rounds=({"round": 1, "accuracy": 347 / 360},))
    for other in (final, a_round):
        elsewhere = replace(other, configuration={**other.configuration, key: "another"})
        for others, images in (([], 10), ([elsewhere], 10), ([elsewhere, other], 360)):
            expected = (0.25 / images) ** 0.5
            assert deviation_by_images(column, [one], others) == pytest.approx(expected)


def noted(folder: Path, **changes: Any) -> str:
    """Return the notes of a study whose first result differs from the others."""
    scaled = scaled_study(folder / "files", text=STUDY.split("[[columns]]")[0])
    study = StudyFolder(folder / "study")
    first, *others = [made_up_result(run) for run in scaled.runs()]
    study.keep([made_up_result(scaled.runs()[0], **changes), *others])
    assert first.name == scaled.runs()[0].name
    return " ".join(study_table(OpenedStudy(study, scaled)).notes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lost": {"failures": 2}}, "flipout-ws_iid_seed-0 (2 failures)"),
        ({"made_as": "flipout-nwa_iid_seed-0"}, "flipout-ws_iid_seed-0 = flipout-nwa_iid_seed-0"),
        ({"environment": {"git-not-found": True}}, "1 of 8 runs cannot be made again"),
        ({"environment": {"git-changed": True}}, "1 of 8 runs cannot be made again"),
        ({"environment": {"numpy": "9"}}, "Runs differ in numpy: 9 (1 runs)"),
        (
            {"rounds": ({"round": 1, FRACTION_AT_FLOOR: 0.97},)},
            "Flipout WS iid 97% of the standard deviations at scale-floor",
        ),
    ],
)
def test_what_has_to_be_known_of_runs_is_noted(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in noted(tmp_path / "a", **changes)
    assert said not in noted(tmp_path / "b")


def strings(content: Any) -> list[str]:
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        return [text for value in content for text in strings(value)]
    return [content] if isinstance(content, str) else []


def test_every_sign_that_a_study_uses_is_printed_by_latex(tmp_path: Path) -> None:
    files = sorted((ROOT / "configs").rglob("*.toml"))
    texts = [text for file in files for text in strings(tomllib.loads(file.read_text("utf-8")))]
    used = {sign for text in texts for sign in text if not sign.isascii()}
    assert {"δ", "ε", "×"} <= used
    signs = "".join(sorted(used | set("±−→√–α≈≤†‡·")))
    text = f"""
title = 'A {signs} a<b>c|d, 50 % & more_'
[base]
rounds = 1
clients = 3
[[rows]]
label = {{ method = 'WS {signs}' }}
"""
    scaled = scaled_study(tmp_path / "files", text=text, published=None)
    printed = latex(study_table(OpenedStudy(StudyFolder(tmp_path / "study"), scaled)))
    assert printed.isascii(), {sign for sign in printed if not sign.isascii()}
    for expected in (r"$\delta$", r"$\times$", r"a$<$b$>$c\textbar{}d", r"50 \% \& more\_"):
        assert expected in printed
    assert printed.count("{") == printed.count("}")
