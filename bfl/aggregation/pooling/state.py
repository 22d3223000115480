"""The state of an accumulator as arrays and numbers, and back: what a server sends to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling.base import PoolingRule, Totals
from bfl.aggregation.pooling.frame import Frame, Types
from bfl.aggregation.pooling.sums import Sums
from bfl.posteriors.posterior import Posterior

Value = npt.NDArray[np.floating] | float | int
State = dict[str, Value]


def state_of(frame: Frame, sums: Sums) -> State:
    """Return everything but the rule and the previous posterior, in arrays that are copies."""
    return {
        "sums": sums.statistics.copy(),
        "point": sums.point.copy(),
        "reference": frame.reference.copy(),
        "count": sums.totals.count,
        "weight": sums.totals.weight,
        "weight-max": sums.totals.weight_max,
        "mass": sums.totals.mass,
        "epsilon": sums.totals.epsilon,
        "mean-itemsize": frame.types.mean.itemsize,
        "variance-itemsize": frame.types.variance.itemsize,
        "point-itemsize": frame.types.point.itemsize,
    }


def frame_and_sums(
    rule: PoolingRule,
    state: Mapping[str, Value],
    previous: Posterior | None,
    threads: int,
    unrounded: Posterior | None = None,
) -> tuple[Frame, Sums]:
    """Return the frame and the sums whose state this is.

    Args:
        rule: The rule that the sums are of.
        state: What ``state_of`` returned.
        previous: The previous global posterior.
        threads: The number of threads to work with.
        unrounded: The previous global posterior as it was pooled, in float64.

    Raises:
        PosteriorError: The previous posterior is of another size.
        ValueError: The state is of a rule with other statistics.
    """
    arrays = {name: np.asarray(state[name]) for name in ("sums", "point", "reference")}
    expected = (rule.statistics, arrays["reference"].size)
    if arrays["sums"].shape != expected:
        raise ValueError(
            f"the state's sums have shape {arrays['sums'].shape}; {rule.name} expected {expected}"
        )
    frame = Frame(
        rule=rule,
        reference=np.array(arrays["reference"]),
        previous=previous if rule.uses_previous else None,
        point_size=int(arrays["point"].size),
        types=Types(*(_type(state, name) for name in Types._fields)),
        threads=threads,
        unrounded=unrounded if rule.keeps_unrounded else None,
    )
    if previous is not None:
        frame.check_sizes(previous.size, previous.point.size)
    totals = Totals(
        count=int(_number(state, "count")),
        weight=_number(state, "weight"),
        weight_max=_number(state, "weight-max"),
        mass=_number(state, "mass"),
        epsilon=_number(state, "epsilon"),
    )
    statistics = np.array(arrays["sums"], np.float64)
    return frame, Sums(statistics, np.array(arrays["point"], np.float64), totals)


def _type(state: Mapping[str, Value], name: str) -> np.dtype[Any]:
    return np.dtype(f"f{int(_number(state, f'{name}-itemsize'))}")


def _number(state: Mapping[str, Value], name: str) -> float:
    return float(cast(float, state[name]))
