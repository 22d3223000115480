"""The deviation by the test images, which stands beside that over the seeds."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from small_study import finished_study

from bfl.experiments.studies import claims, images
from bfl.experiments.studies.formats import markdown
from bfl.experiments.studies.images import share_step


def test_the_examples_of_the_docstrings() -> None:
    for module in (claims, images):
        assert doctest.testmod(module).failed == 0


def test_the_step_of_shares_is_found() -> None:
    assert share_step([right / 360 for right in (347, 350, 359)]) == 1 / 360
    curve = [float(f"{right / 10_000:.7g}") for right in (1001, 4127, 9339, 77)]
    assert share_step(curve) == 1 / 10_000
    assert share_step([0.0, 1.0, float("nan")]) == 1.0
    assert share_step([0.7071067812, 0.1415926536, 0.7182818285, 0.6180339887, 0.4142135624]) == 0.0


def test_a_share_has_the_binomial_deviation_of_one_run(tmp_path: Path) -> None:
    """The made-up curves have 0.1: of 360 images and of ten, of 360."""
    table = finished_study(tmp_path / "a", {"A": [347 / 360, 350 / 360]})
    [number] = table.lines[0].numbers
    share = 697 / 720
    assert number.by_images == pytest.approx((share * (1 - share) / 360) ** 0.5)
    assert f"± 0.006 ({number.by_images:.3f})" in markdown(table)
    other = finished_study(tmp_path / "b", {"A": [0.5, 0.75]}, "negative-log-likelihood")
    assert other.lines[0].numbers[0].by_images is None
