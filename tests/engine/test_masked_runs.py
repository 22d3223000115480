"""Whole runs whose server learns sums alone, beside runs in which it sees each update."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import make_run

from bfl.experiments.results.run_folder import RunFolder

SMALL: dict[str, Any] = {
    "model": "mlp",
    "strategy": "pvi",
    "damping": 0.3,
    "train-examples": 200,
    "test-examples": 50,
    "rounds": 1,
    "local-epochs": 1,
    "mc-samples": 2,
    "evaluate-every": 0,
}


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(tmp_path: Path, name: str, **changes: Any) -> RunFolder:
    return make_run(SMALL, 3, tmp_path / name, **changes)


def check_close(masked: RunFolder, direct: RunFolder) -> None:
    (wanted, _), (found, _) = direct.posterior(), masked.posterior()
    assert (np.abs(found.mean - wanted.mean) < 0.01 * np.sqrt(wanted.variance)).all()
    np.testing.assert_allclose(found.variance, wanted.variance, rtol=1e-3)
    np.testing.assert_allclose(found.point, wanted.point, rtol=1e-4, atol=1e-6)


def test_a_masked_run_ends_where_a_direct_one_does(tmp_path: Path) -> None:
    """The product's own training; states from round to round are in test_parts_contract.py."""
    direct = run(tmp_path, "direct")
    masked = run(tmp_path, "masked", exchange="masked")
    check_close(masked, direct)
    record = masked.rounds()[-1]
    assert record["clients"] == 3
    assert record["effective-clients"] == record["largest-weight"] == "hidden"
    assert [set(entry) for entry in record["per-client"]] == [{"client", "num-examples"}] * 3
    assert not [key for key in record if key.startswith("client/")]
    assert direct.rounds()[-1]["effective-clients"] == pytest.approx(3.0, rel=0.01)


def test_what_is_masked_is_the_noised_update(tmp_path: Path) -> None:
    """Clip, noise, encode, mask: by the ClientApp, with the noise that the seed gives."""
    private = {
        "strategy": "conflation",
        "weighting": "equal",
        "outgoing": "clip+noise",
        "clip-norm": 0.1,
        "noise-multiplier": 1.0,
        "round-retries": 0,
    }
    direct = run(tmp_path, "direct", **private)
    masked = run(tmp_path, "masked", **private, exchange="masked")
    check_close(masked, direct)
    assert masked.rounds()[0]["epsilon"] == direct.rounds()[0]["epsilon"] > 0
