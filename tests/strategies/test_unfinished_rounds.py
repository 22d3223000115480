"""A round that was pooled and not refined: gone on with by the run that pooled it, and no other."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy_server import NumpyServer
from small_federation import arguments, make_app, make_grid, shifted

from bfl.aggregation.refinements.distillation import Distillation
from bfl.errors import RunError
from bfl.federation.wire import posterior_to_arrays
from bfl.posteriors import Posterior
from strategies import NaiveWeightedAveraging
from strategies.plausibility import ImplausibleUpdatesError
from strategies.run_support import Round, RunSupport
from strategies.server_state import PooledRound, ServerState
from strategies.start import UNFINISHED

D, P = 3, 1
START = Posterior(np.zeros(D, np.float32), np.full(D, 0.1, np.float32), np.ones(P, np.float32))
RUN: dict[str, Any] = {"run_key": 32 * "a", "configuration": '{"local-epochs": 1}'}


class KilledError(Exception):
    """Stands for whatever ends the server."""


@dataclass
class Killed(NumpyServer):
    """A server that is killed while it distils its first round."""

    def __post_init__(self) -> None:
        super().__init__(D + P)

    def distil(self, task: Any) -> Any:
        raise KilledError


@dataclass
class Trainings:
    """Clients that count how often they train."""

    count: int = 0
    told: list[Any] = field(default_factory=list)

    def reply(self, task: Any, received: Posterior) -> Any:
        self.count += 1
        return shifted(task, received)


def play(
    folder: Path,
    server: NumpyServer | None = None,
    begun: Posterior = START,
    run_key: str = "",
    **given: Any,
) -> tuple[int, Posterior]:
    """Run two rounds; return how often clients have trained, and the posterior."""
    trainings, found = Trainings(), []
    given.setdefault("on_round", lambda done: found.append(done.posterior))
    strategy = NaiveWeightedAveraging(
        **arguments(
            **{"refinement": "distillation", "weighting": "equal", **given},
            server=server or NumpyServer(D + P),
            run=RunSupport(folder=str(folder), key=run_key, state=ServerState.first(begun, 4)),
        )
    )
    grid = make_grid(make_app(trainings.reply))
    strategy.start(grid, posterior_to_arrays(begun), num_rounds=2)
    return trainings.count, found[-1]


LABELS: dict[str, Any] = {"refinement": Distillation(distillation_targets="labels")}


@pytest.mark.parametrize(
    "run",
    [RUN, {**RUN, "run_key": ""}, {**RUN, **LABELS}],
    ids=["a run", "an app of one's own", "no models to keep"],
)
def test_the_run_that_was_killed_goes_on_with_it(run: dict[str, Any], tmp_path: Path) -> None:
    _, expected = play(tmp_path / "whole", **run)
    with pytest.raises(KilledError):
        play(tmp_path / "killed", Killed(), **run)
    trained, posterior = play(tmp_path / "killed", **run)
    assert trained == 4  # in the second round alone
    assert posterior.digest() == expected.digest()


@pytest.mark.parametrize(
    "other",
    [
        {"run_key": 32 * "b"},
        {"run_key": "", "configuration": '{"local-epochs": 2}'},
        {"seed": 1},
        {"weighting": "train-size"},
        {"begun": replace(START, mean=START.mean + np.float32(0.5))},
    ],
    ids=["key", "configuration", "seed", "method", "posterior"],
)
def test_another_run_does_not(other: dict[str, Any], tmp_path: Path) -> None:
    left = {**RUN, **({"run_key": ""} if "configuration" in other else {})}
    with pytest.raises(KilledError):
        play(tmp_path / "run", Killed(), **left)
    assert list((tmp_path / "run" / UNFINISHED).iterdir())
    trained, posterior = play(tmp_path / "run", **{**left, **other})
    assert trained == 8
    assert posterior.digest() == play(tmp_path / "whole", **{**left, **other})[1].digest()


def test_nothing_of_it_stays_when_the_run_is_over(tmp_path: Path) -> None:
    """Each client's posterior of the last round is nobody's business afterwards."""
    play(tmp_path, **RUN)
    assert not (tmp_path / UNFINISHED).exists()


@pytest.mark.parametrize("error", [RunError("useless"), ImplausibleUpdatesError({0: "far"})])
def test_nothing_of_it_stays_when_it_is_of_no_use(error: RunError, tmp_path: Path) -> None:
    """A resume would meet it again."""

    def look(finished: Round) -> bool:
        raise error

    with pytest.raises(RunError):
        play(tmp_path, **RUN, on_round=look)
    assert not (tmp_path / UNFINISHED).exists()


def test_whose_values_were_far_is_kept_with_it() -> None:
    pooled = PooledRound(ServerState.first(START, 2), {}, (), suspicion={1: "means of 30"})
    assert PooledRound.from_arrays(0, pooled.to_arrays(), None).suspicion == {1: "means of 30"}
