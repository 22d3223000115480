"""An ensemble's members, judged one by one, against what can be counted by hand."""

import numpy as np
import pytest

from bfl.evaluation.evaluated_ensemble import evaluate_ensemble

LABELS = np.array([0, 0, 1, 1])


def logits(*probabilities: float) -> np.ndarray:
    """Return logits (4, 2) that give the first class these probabilities."""
    first = np.array(probabilities)
    return np.log(np.stack([first, 1 - first], axis=1)).astype(np.float32)


# Right, right, right, wrong with confidence 0.85; and right, wrong, wrong, right with 0.95.
SURE = logits(0.85, 0.85, 0.15, 0.85)
SURER = logits(0.95, 0.05, 0.95, 0.05)
UNSURE = logits(0.55, 0.55, 0.55, 0.55)


def test_members_are_evaluated_by_kind() -> None:
    members = [
        ("sample-0", SURE),
        ("sample-1", UNSURE),
        ("average", SURE),
        ("client-0", SURER),
        ("client-3-draw-0", SURER),
    ]
    found = evaluate_ensemble(members, LABELS)
    numbers = found.round_metrics({"calibration-bins": 5})
    assert found.accuracies == pytest.approx(
        {
            "sample-0": 0.75,
            "sample-1": 0.5,
            "average": 0.75,
            "client-0": 0.5,
            "client-3-draw-0": 0.5,
        }
    )
    assert numbers["ensemble-member-accuracy"] == pytest.approx(0.6)
    assert numbers["ensemble-best-member-accuracy"] == 0.75
    assert numbers["ensemble-samples-accuracy"] == pytest.approx(0.625)
    assert numbers["ensemble-clients-accuracy"] == 0.5
    error = "expected-calibration-error"
    assert numbers[f"ensemble-samples-{error}"] == pytest.approx((0.1 + 0.05) / 2, abs=1e-6)
    assert numbers[f"ensemble-clients-{error}"] == pytest.approx(0.45, abs=1e-6)
    assert found.confidences() == {
        "samples": {"right": by_bin(b5=1.0, b8=1.5), "wrong": by_bin(b5=1.0, b8=0.5)},
        "clients": {"right": by_bin(b9=2.0), "wrong": by_bin(b9=2.0)},
    }


def by_bin(**counts: float) -> list[float]:
    return [counts.get(f"b{number}", 0.0) for number in range(10)]


def test_a_member_whose_logits_are_not_finite_is_left_out_and_counted() -> None:
    members = [("sample-0", SURE), ("average", UNSURE), ("client-0", SURER)]
    sound = evaluate_ensemble(members, LABELS)
    lost = SURE.copy()
    lost[3, 1] = np.inf
    found = evaluate_ensemble([("client-1", lost), *members, ("client-2", lost * np.nan)], LABELS)
    assert found.left_out == ("client-1", "client-2")
    assert sound.left_out == ()
    assert found.accuracies == sound.accuracies
    assert found.confidences() == sound.confidences()
    numbers = sound.round_metrics({})
    assert found.round_metrics({}) == {**numbers, "ensemble-left-out": 2.0}
    assert "ensemble-left-out" not in numbers
