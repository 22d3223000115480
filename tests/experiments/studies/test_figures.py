"""A study's figures: which curves, which panels, which bands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from small_study import STUDY, begun_study, finish_run, made_study, opened

from bfl.experiments.results.run_folder import CLIENTS, RETENTION
from bfl.experiments.studies.figures import draw_study, drawings
from bfl.experiments.studies.results import StudyFolder
from bfl.experiments.studies.study import Run

GRID = [0.25, 0.5, 0.75, 1.0]
KINDS = ("learning-curves", "retention-curves", "numbers", "client-numbers")


def make(folder: StudyFolder, run: Run) -> None:
    """Make the run of the n-th place, with curves that depend on n."""
    place = [each.name for each in folder.study().runs].index(run.name)
    rounds: list[dict[str, float]] = [
        {"accuracy": (place + number) / 20, "negative-log-likelihood": place} if number != 2 else {}
        for number in (1, 2, 3)
    ]
    if run.labels["rule"] == "NWA":
        rounds.append({"accuracy": 0.25, "ensemble-accuracy": 0.75})
    made = finish_run(folder, run, rounds, accuracy=place / 10)
    curve = {"area": 0.5, "value": [float(place < 4), 0.9, 0.8, place / 10]}
    by = {"predictive-entropy": curve, "aleatoric": curve}
    by["epistemic"] = {**curve, "value": [0.0, 0.7, 0.8, 0.9]}
    made.write_json(RETENTION, {"fraction": GRID, "curves": {"accuracy": by}})
    judged = {"global-accuracy": place / 10}
    if run.labels["rule"] == "WS":
        judged |= {"best-better-accuracy": 0.75}
    else:
        judged |= {"best-meme-accuracy": 0.25}
    made.write_json(CLIENTS, {"0": judged, "2": {"global-accuracy": 0.9}})


def drawn(folder: Path, figure: str = "", only: tuple[str, ...] = (), **settings: Any) -> Any:
    """Return a study's figure, all its text drawn, and its caption."""
    study = StudyFolder(folder / "small")
    path = study.path / "study.toml"
    text = path.read_text("utf-8").partition("\n[[figures]]")[0]
    lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
    path.write_text(f'{text}\n[[figures]]\nname = "f"\nkind = "{figure}"\n{lines}', "utf-8")
    found = list(drawings(opened(study, only)))
    return found[0][1:] if found else (None, "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    made_study(folder, make)
    return folder


def test_learning_curves_are_means_over_the_seeds(whole: Path) -> None:
    figure, caption = drawn(whole, "learning-curves", title='"Two rules"')
    assert [axes.get_title() for axes in figure.axes] == ["iid", "Dirichlet 0.5"]
    line = figure.axes[0].lines[0]
    assert line.get_label() == "WS", "labels that all rows share are left out"
    # Places 0 and 4; round 2 was not evaluated.
    np.testing.assert_array_equal(line.get_xdata(), [1, 3])
    np.testing.assert_allclose(line.get_ydata(), [(1 + 5) / 40, (3 + 7) / 40])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(5 / 20 + np.std([3, 7], ddof=1) / 20)
    for part in ("Two rules", "± standard deviation"):
        assert part in caption
        assert part in figure.get_suptitle()


def test_an_ensemble_is_drawn_beside_the_posterior(whole: Path) -> None:
    for ensemble in ("true", "false"):
        figure, _ = drawn(whole, "learning-curves", ensemble=ensemble, rows='{ rule = "NWA" }')
        ends = [line.get_ydata()[-1] for line in figure.axes[0].lines]
        assert ends == [0.25, *([0.75] if ensemble == "true" else [])]


def test_numbers_are_means_with_each_seeds_own(whole: Path) -> None:
    assert drawn(whole, "numbers", metrics='["mean-epistemic"]')[0] is None
    figure, _ = drawn(whole, "numbers", metrics='["accuracy", "best-accuracy"]')
    iid, _ = figure.axes
    assert [label.get_text() for label in iid.get_yticklabels()] == ["WS", "NWA"]
    np.testing.assert_allclose(np.sort(iid.lines[0].get_xdata()), [0.0, 0.4])
    bar = iid.containers[0]
    assert float(bar.lines[0].get_xdata()[0]) == pytest.approx(0.2)
    (ends,) = bar.lines[2][0].get_segments()
    np.testing.assert_allclose(ends[:, 0], 0.2 + np.std([0, 0.4], ddof=1) * np.array([-1, 1]))
    assert len({container.lines[0].get_ydata()[0] for container in iid.containers}) == 4


def test_numbers_of_clients_are_means_over_the_seeds_client_by_client(whole: Path) -> None:
    figure, _ = drawn(whole, "client-numbers")
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


def test_clients_without_a_number_have_no_line(whole: Path) -> None:
    """Those of FedAvg have one model, so there is no better of two."""
    figure, _ = drawn(whole, "client-numbers", metric='"best-better-accuracy"')
    assert {text.get_text() for text in figure.legends[0].texts} == {"WS"}
    assert drawn(whole, "client-numbers", metric='"last-better-accuracy"')[0] is None


def test_retention_curves_have_a_line_of_panels_for_each_uncertainty(whole: Path) -> None:
    figure, _ = drawn(whole, "retention-curves")
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


def test_rows_and_panels_that_are_not_asked_for_are_left_out(whole: Path) -> None:
    for kind, panels in (("learning-curves", 1), ("retention-curves", 3)):
        assert len(drawn(whole, kind, ("_iid_",))[0].axes) == panels
    for rows, count in (
        ('{ rule = "NWA" }', 1),
        ('{ model = "Flipout", rule = ["NWA"] }', 1),
        ('[{ rule = "NWA" }, { rule = "WS" }]', 2),
    ):
        assert len(drawn(whole, "learning-curves", rows=rows)[0].axes[0].lines) == count


def test_a_study_without_figures_gets_one_of_each_kind_and_none_without_runs(
    tmp_path: Path,
) -> None:
    more = ", ".join(f'{{ label = "{a}", alpha = {a}.0 }}' for a in "123")
    text = STUDY.split("[published]")[0].replace('["iid", {', f'["iid", {more}, {{')
    text = "\n".join(line for line in text.splitlines() if not line.startswith("published"))
    made_study(tmp_path / "a", make, text)
    study = opened(StudyFolder(tmp_path / "a" / "small"))
    paths = draw_study(study)
    assert [path.stem for path in paths] == list(KINDS)
    assert all(image.imread(path)[..., :3].std() > 0.01 for path in paths)
    again = [path.read_bytes() for path in paths]
    assert [path.read_bytes() for path in draw_study(study)] == again
    for _, figure, _ in drawings(study):
        if len(figure.axes) < 10:  # five panels: the places of the others are empty
            assert sum(axes.axison for axes in figure.axes) == 5
    assert draw_study(opened(begun_study(tmp_path / "b"))) == []
