"""Rounds of a method that has one part, with clients whose replies a test makes."""

from collections.abc import Callable
from typing import Any

from flwr.app import RecordDict
from small_federation import make_app, make_grid

import strategies
from bfl.federation.parts import TwoSidedPart
from bfl.federation.wire import TrainTask, posterior_to_arrays
from bfl.posteriors import Posterior
from strategies.course import Round


def play_part(
    part: TwoSidedPart,
    reply: Callable[[TrainTask, Posterior], RecordDict],
    start: Posterior,
    rounds: int,
    done: list[Round],
    told: list[str],
    **more: Any,
) -> None:
    """Average in rounds, which go to ``done`` as they end; ``told`` gets the warnings.

    ``more`` are arguments of the Strategy.
    """
    strategy = strategies.PosteriorPooling(
        rule="naive-weighted-averaging",
        weighting="equal",
        parts=(part,),
        round_retries=0,
        on_round=done.append,
        on_warning=told.append,
        **more,
    )
    strategy.start(make_grid(make_app(reply)), posterior_to_arrays(start), num_rounds=rounds)
