"""A study's figures: which curves, which panels, which bands."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from small_study import STUDY, scaled_study

from bfl.configuration import resolve
from bfl.errors import DataError
from bfl.experiments.results.run_folder import METRICS, RunFolder
from bfl.experiments.studies.figures import draw_study, study_figures
from bfl.experiments.studies.figures.base import Overlay, drawings
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, begin
from bfl.experiments.studies.study import FigureSpec, Run, Study

FIGURES = """
[[figures]]
name = "Figure 2"
kind = "retention-curves"
title = "Calibration"
by = ["epistemic"]
rows = { rule = "WS" }

[[figures]]
name = "curves"
kind = "learning-curves"
metric = "negative-log-likelihood"
"""
Made = tuple[StudyFolder, Study]
GRID = [0.25, 0.5, 0.75, 1.0]


def made(folder: Path, text: str = STUDY, scale: str = "") -> Made:
    """Make a study whose run of the n-th place has curves that depend on n."""
    scaled = scaled_study(folder / "files", scale, text=text)
    study = StudyFolder(folder / "study")
    begin(study, scaled, {})
    for place, run in enumerate(scaled.runs()):
        run_folder = RunFolder.create(study.runs, run.name, resolve(run.values).values, {})
        for number in (1, 2, 3):
            evaluated = {"accuracy": (place + number) / 20, "negative-log-likelihood": place}
            run_folder.append_round({"round": number, **(evaluated if number != 2 else {})})
        curve = {"area": 0.5, "value": [float(place < 4), 0.9, 0.8, place / 10]}
        curves: dict[str, Any] = {
            "accuracy": {
                "predictive-entropy": curve,
                "aleatoric": curve,
                "epistemic": {**curve, "value": [0.0, 0.7, 0.8, 0.9]},
            }
        }
        run_folder.write_json("run.json:retention", {"fraction": GRID, "curves": curves})
        judged = {"global-accuracy": place / 10, "last-meme-negative-log-likelihood": 2.0 + place}
        run_folder.write_json("run.json:clients", {"0": judged, "2": {"global-accuracy": 0.9}})
        run_folder.write_metrics({"accuracy": place / 10})
    return study, scaled


def unpublished(text: str) -> str:
    """Return a study without its published table."""
    lines = text.split("[published]")[0].splitlines()
    return "\n".join(line for line in lines if not line.startswith("published"))


def overlay(
    study: StudyFolder,
    scaled: Study,
    wanted: Callable[[Run], bool] = lambda run: True,
    **labels: str,
) -> Overlay:
    spec = FigureSpec.model_validate({"name": "f", "kind": "", "rows": labels})
    return Overlay(OpenedStudy(study, scaled, wanted), spec)


def figure_of(kind: str, shown: Overlay, settings: dict[str, Any] | None = None) -> Any:
    figure = study_figures.create(kind, settings or {}).draw(shown)
    assert figure is not None
    return figure


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A study that no test changes."""
    return made(tmp_path_factory.mktemp("whole"))


def test_captions_say_the_unit_the_better_side_and_the_spread(whole: Made) -> None:
    study, scaled = whole
    specs = (
        FigureSpec.model_validate({"name": "f", "kind": kind, "title": "Two rules", **settings})
        for kind, settings in (
            ("learning-curves", {"metric": "negative-log-likelihood"}),
            ("client-numbers", {"metric": "global-accuracy"}),
        )
    )
    opened = OpenedStudy(study, replace(scaled, figures=tuple(specs)))
    curves, clients = (caption for _, _, caption in drawings(opened))
    for caption, unit, side in ((curves, "nats", "lower"), (clients, "%", "higher")):
        for part in (f"in {unit}, {side} is better", "Two rules", "± standard deviation"):
            assert part in caption


def test_learning_curves_are_means_over_the_seeds(whole: Made) -> None:
    figure = figure_of("learning-curves", overlay(*whole))
    assert [axes.get_title() for axes in figure.axes] == ["iid", "Dirichlet 0.5"]
    line = figure.axes[0].lines[0]
    assert line.get_label() == "WS", "labels that all rows share are left out"
    # Places 0 and 4; round 2 was not evaluated.
    np.testing.assert_array_equal(line.get_xdata(), [1, 3])
    np.testing.assert_allclose(line.get_ydata(), [(1 + 5) / 40, (3 + 7) / 40])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(5 / 20 + np.std([3, 7], ddof=1) / 20)


def test_an_ensemble_is_drawn_beside_the_posterior(tmp_path: Path) -> None:
    """From what results keep of the rounds: the ensemble's numbers too."""
    study, scaled = made(tmp_path)
    for run in scaled.runs():
        judged = {"accuracy": 0.25, "ensemble-accuracy": 0.75, "ensemble-other": 9.0}
        study.run(run.name).append_round({"round": 4, **judged})
    for ensemble in (True, False):
        figure = figure_of(
            "learning-curves", overlay(study, scaled, rule="NWA"), {"ensemble": ensemble}
        )
        ends = [line.get_ydata()[-1] for line in figure.axes[0].lines]
        assert ends == [0.25, *([0.75] if ensemble else [])]
        assert (figure.axes[0].lines[-1].get_label() == "ensemble") == ensemble


def test_numbers_are_means_with_each_seeds_own(tmp_path: Path) -> None:
    study, scaled = made(tmp_path)
    settings = {"metrics": ["accuracy", "ensemble-accuracy"]}
    nothing = study_figures.create("numbers", {"metrics": ["mean-epistemic"]})
    assert nothing.draw(overlay(study, scaled)) is None
    for place, run in enumerate(scaled.runs()):
        numbers = {"accuracy": place / 10, "ensemble-accuracy": 0.9}
        study.run(run.name).write_metrics(numbers)
    figure = figure_of("numbers", overlay(study, scaled), settings)
    iid, _ = figure.axes
    assert [label.get_text() for label in iid.get_yticklabels()] == ["WS", "NWA"]
    dots = iid.lines[0]
    np.testing.assert_allclose(np.sort(dots.get_xdata()), [0.0, 0.4])
    bar = iid.containers[0]
    assert float(bar.lines[0].get_xdata()[0]) == pytest.approx(0.2)
    (ends,) = bar.lines[2][0].get_segments()
    np.testing.assert_allclose(ends[:, 0], 0.2 + np.std([0, 0.4], ddof=1) * np.array([-1, 1]))
    assert len({container.lines[0].get_ydata()[0] for container in iid.containers}) == 4


def test_numbers_of_clients_are_means_over_the_seeds_client_by_client(whole: Made) -> None:
    figure = figure_of("client-numbers", overlay(*whole))
    for panel, axes in enumerate(figure.axes):
        assert [bar.get_label() for bar in axes.containers] == ["WS", "NWA"]
        for row, bar in enumerate(axes.containers):
            clients, values = bar.lines[0].get_data()
            np.testing.assert_array_equal(np.round(clients), [0, 2])
            # Places of the runs: seeds slowest, rows fastest; so 4 apart from seed to seed.
            place = 2 * panel + row
            own = np.array([place, place + 4]) / 10
            np.testing.assert_allclose(values, [own.mean(), 0.9])
            first, _ = bar.lines[2][0].get_segments()
            np.testing.assert_allclose(np.ptp(first[:, 1]), 2 * own.std(ddof=1))
            lines = [line for line in axes.lines if list(line.get_xdata()) == [0, 1]]
            np.testing.assert_allclose(lines[row].get_ydata(), (own.mean() + 0.9) / 2)


def test_numbers_of_clients_are_of_finished_runs_that_have_them(tmp_path: Path) -> None:
    study, scaled = made(tmp_path)
    name = "last-meme-negative-log-likelihood"
    figure = figure_of("client-numbers", overlay(study, scaled), {"metric": name})
    assert list(np.round(figure.axes[0].containers[0].lines[0].get_xdata())) == [0]
    missing = study_figures.create("client-numbers", {"metric": "best-better-accuracy"})
    assert missing.draw(overlay(study, scaled)) is None
    for run in scaled.runs():
        (study.run(run.name).path / METRICS).unlink()
    assert study_figures.create("client-numbers").draw(overlay(study, scaled)) is None
    for unknown in ("", "best-better-acuracy"):
        with pytest.raises(ValueError, match=f"unknown number of a client '{unknown}'"):
            study_figures.create("client-numbers", {"metric": unknown})


def test_clients_without_a_number_are_drawn_by_another_one(tmp_path: Path) -> None:
    """Those of FedAvg have one model, so there is no better of two."""
    more = 'label = { model = "Flipout", rule = "LP" }\nstrategy = "lp"\npublished = false\n'
    study, scaled = made(tmp_path, f"{STUDY}\n[[rows]]\n{more}")
    for run in scaled.runs():
        numbers = {"WS": {"best-better-accuracy": 0.75}, "NWA": {"best-meme-accuracy": 0.25}}
        own = numbers.get(run.labels["rule"], {"global-accuracy": 0.5})
        study.run(run.name).write_json("run.json:clients", {"0": own, "1": own})
    settings = {"metric": "best-better-accuracy", "otherwise": "best-meme-accuracy"}
    figure = figure_of("client-numbers", overlay(study, scaled), settings)
    labels = ["WS", "NWA (best meme accuracy)", "LP: no such number"]
    assert sorted(text.get_text() for text in figure.legends[0].texts) == sorted(labels)
    for axes in figure.axes:
        drawn = [bar.lines[0].get_ydata().tolist() for bar in axes.containers]
        assert drawn == [[0.75, 0.75], [0.25, 0.25]]
    del settings["otherwise"]
    figure = figure_of("client-numbers", overlay(study, scaled), settings)
    labels = ["WS", "NWA: no such number", "LP: no such number"]
    assert sorted(text.get_text() for text in figure.legends[0].texts) == sorted(labels)
    other = {"otherwise": "last-meme-negative-log-likelihood"}
    with pytest.raises(ValueError, match="allowed: a number whose name ends in 'accuracy'"):
        study_figures.create("client-numbers", settings | other)


def test_retention_curves_have_a_line_of_panels_for_each_uncertainty(whole: Made) -> None:
    figure = figure_of("retention-curves", overlay(*whole))
    assert len(figure.axes) == 3 * 2
    ws, nwa = figure.axes[1].lines
    np.testing.assert_allclose(ws.get_ydata(), [0.5, 0.9, 0.8, (0.2 + 0.6) / 2])
    np.testing.assert_allclose(nwa.get_ydata()[-1], (0.3 + 0.7) / 2)
    np.testing.assert_array_equal(ws.get_xdata(), GRID)
    np.testing.assert_allclose(figure.axes[5].lines[0].get_ydata(), [0.0, 0.7, 0.8, 0.9])
    assert "epistemic" in figure.axes[4].get_ylabel()
    assert ws.get_linestyle() != nwa.get_linestyle()
    for axes in figure.axes[:4]:
        low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
        # The seeds have 1 and 0 at the left: 0.5 ± 0.7 leaves what an accuracy can be.
        assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize("kind", ["client-numbers", "learning-curves", "numbers"])
def test_places_without_a_panel_are_empty(tmp_path: Path, kind: str) -> None:
    more = ", ".join(f'{{ label = "{a}", alpha = {a}.0 }}' for a in "1234")
    text = unpublished(STUDY).replace('partition = ["iid", {', f'partition = ["iid", {more}, {{')
    study, scaled = made(tmp_path, text)
    figure = figure_of(kind, overlay(study, scaled))
    assert [axes.axison for axes in figure.axes] == [n < 6 for n in range(len(figure.axes))]


def test_rows_and_panels_that_are_not_asked_for_are_left_out(whole: Made) -> None:
    one = overlay(*whole, lambda run: run.labels["partition"] == "iid")
    for kind, panels in (("learning-curves", 1), ("retention-curves", 3)):
        assert len(figure_of(kind, one).axes) == panels
    assert len(figure_of("learning-curves", overlay(*whole, rule="NWA")).axes[0].lines) == 1


def test_rows_are_named_by_one_table_or_by_several(tmp_path: Path) -> None:
    one = FIGURES.replace('rows = { rule = "WS" }', 'rows = { model = "Flipout", rule = ["NWA"] }')
    several = FIGURES.replace(
        'rows = { rule = "WS" }', 'rows = [{ rule = "NWA" }, { rule = "WS" }]'
    )
    for text, count in ((FIGURES, 1), (one, 1), (several, 2)):
        scaled = scaled_study(tmp_path / "files", text=STUDY + text)
        first, second = scaled.figures
        assert sum(first.shows(row.labels) for row in scaled.rows) == count
        assert all(second.shows(row.labels) for row in scaled.rows)


def test_no_legend_is_clipped_and_panels_share_their_axes(whole: Made, tmp_path: Path) -> None:
    text = unpublished(STUDY).replace('partition = ["iid", {', "only = [{")
    single = made(tmp_path, text.replace('rule = "', f'rule = "{"Long " * 5}'))
    for name in study_figures.names():
        figure = figure_of(name, overlay(*single))
        figure.draw_without_rendering()
        for legend in figure.legends:
            box = legend.get_window_extent()
            assert (box.x0 >= 0, box.x1 <= figure.bbox.x1) == (True, True), name
        panels = [axes for axes in figure_of(name, overlay(*whole)).axes if axes.lines]
        assert len(panels) > 1
        assert len({(axes.get_ylim(), axes.get_xlim()) for axes in panels}) == 1


def test_all_figures_are_written_with_title_and_scale(tmp_path: Path) -> None:
    study, scaled = made(tmp_path, STUDY + FIGURES, "seeds=1,rounds=0.5")
    paths = draw_study(OpenedStudy(study, scaled))
    assert [path.name for path in paths] == ["figure-2.png", "curves.png"]
    before = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in draw_study(OpenedStudy(study, scaled))] == before
    for path in paths:
        assert image.imread(path)[..., :3].std() > 0.01
    spec = scaled.figures[0]

    title = Overlay(OpenedStudy(study, scaled), spec).title()
    assert title == (
        "Calibration\ndigits · resnet20 · flipout · 3 clients · seed 0\n"
        "scaled down: rounds 4 → 2, seeds 2 → 1"
    ), "one seed has no band"
    both, planned = made(tmp_path / "both")
    title = Overlay(OpenedStudy(both, planned), spec).title()
    assert "seeds 0, 1" in title
    assert title.endswith("\n± standard deviation over the seeds")
    # The study plans two seeds, of which one is done.
    title = Overlay(OpenedStudy(study, planned), spec).title()
    assert title.endswith("3 clients · seed 0\nat the scale of the study's file")


def test_a_figure_says_which_lines_have_fewer_seeds(tmp_path: Path) -> None:
    study, scaled = made(tmp_path)
    # Of NWA with IID data one seed is left, and one that has begun.
    gone = study.run("flipout-nwa_iid_seed-1").path
    (gone / METRICS).unlink()
    names = ["WS", "NWA (1 or 2 of 2 seeds)"]
    for kind in ("learning-curves", "client-numbers", "numbers"):
        figure = figure_of(kind, overlay(study, scaled))
        if kind == "numbers":
            assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == names
        else:
            assert [text.get_text() for text in figure.legends[0].texts] == names
        assert "seeds 0, 1" in figure.get_suptitle()
    one = overlay(study, scaled, lambda run: run.labels["partition"] == "iid", rule="NWA")
    figure = figure_of("client-numbers", one)
    assert "seed 0" in figure.get_suptitle()
    assert "bands" not in figure.get_suptitle()
    (bars,) = figure.axes[0].containers[0].lines[2]
    assert not any(ends.size for ends in bars.get_segments()), "no spread is known"


def test_what_has_begun_makes_no_step_in_a_mean(tmp_path: Path) -> None:
    study, scaled = made(tmp_path)
    later = study.run("flipout-ws_iid_seed-1")
    (later.path / METRICS).unlink()
    (later.path / "rounds.jsonl").write_text(
        "".join((later.path / "rounds.jsonl").read_text().splitlines(True)[:1])
    )
    shown = overlay(study, scaled)
    figure = figure_of("learning-curves", shown)
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), [1 / 20, 3 / 20])
    for run in scaled.runs():
        if not run.name.endswith("seed-1"):
            (study.run(run.name).path / METRICS).unlink()
    figure = figure_of("learning-curves", overlay(study, scaled))
    assert figure.axes[0].lines[0].get_xdata().tolist() == [1], "as far as both have come"


def test_a_study_without_figures_gets_one_of_each_kind_and_none_without_runs(
    tmp_path: Path,
) -> None:
    drawn = draw_study(OpenedStudy(*made(tmp_path)))
    assert {path.stem for path in drawn} == set(study_figures.names())
    scaled = scaled_study(tmp_path / "others")
    assert draw_study(OpenedStudy(StudyFolder(tmp_path / "empty"), scaled)) == []
    assert not (tmp_path / "empty").exists()


def test_a_corrupt_curve_is_named(tmp_path: Path) -> None:
    study, scaled = made(tmp_path)
    study.run(scaled.runs()[0].name).write_json(
        "run.json:retention", {"fraction": GRID, "curves": {}}
    )
    with pytest.raises(DataError, match=r"seed-0.*no retention curve"):
        draw_study(OpenedStudy(study, scaled))
