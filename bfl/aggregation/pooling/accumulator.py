"""One accumulator for every pooling rule: sums of statistics, in memory that no client adds to."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bfl.aggregation.pooling.base import PoolingRule
from bfl.aggregation.pooling.blocks import over_blocks
from bfl.aggregation.pooling.frame import Frame
from bfl.aggregation.pooling.state import State, Value, frame_and_sums, state_of
from bfl.aggregation.pooling.sums import Pooled, Sums, pooled
from bfl.aggregation.pooling.weights import checked_weight
from bfl.posteriors.posterior import Posterior


class Accumulator:
    """The sums of a rule's statistics over the clients added so far.

    It holds ``rule.statistics`` float64 vectors (D,), one float64 vector (P,) and a reference mean
    (D,), however many clients are added, and keeps no client's posterior. Accumulators of one rule
    may be merged in any grouping, as in a hierarchy of servers. Sums are rounded, so another order
    or grouping changes the last digits: add in a fixed order where bits matter.

    Args:
        frame: What is known of the clients; its reference is the accumulator's own.
        sums: What has been added, which changes in place.
    """

    def __init__(self, frame: Frame, sums: Sums) -> None:
        self._frame = frame
        self._sums = sums

    @classmethod
    def empty(
        cls,
        rule: PoolingRule,
        like: Posterior,
        previous: Posterior | None = None,
        *,
        unrounded: Posterior | None = None,
        threads: int = 1,
    ) -> Accumulator:
        """Return the accumulator to which nothing has been added.

        Args:
            rule: The pooling rule.
            like: A posterior that gives the sizes, the types of the result and, without
                ``previous``, the reference mean around which sums are taken; in general the first
                client's. It is not added.
            previous: The previous global posterior, which gives the reference mean, and which some
                rules use.
            unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded``
                use.
            threads: The number of threads to work with; the bits do not depend on it.

        Raises:
            PosteriorError: A posterior is not valid or the two do not go together.
        """
        like.check()
        frame = Frame.like(rule, like, previous, threads, unrounded).kept()
        return cls(frame, Sums.zero(frame))

    @classmethod
    def from_state(
        cls,
        rule: PoolingRule,
        state: Mapping[str, Value],
        previous: Posterior | None = None,
        *,
        unrounded: Posterior | None = None,
        threads: int = 1,
    ) -> Accumulator:
        """Return the accumulator whose ``state`` this is.

        Args:
            rule: The rule it had.
            state: What ``state`` returned.
            previous: The previous global posterior it had.
            unrounded: The same as it was pooled, if it had that.
            threads: The number of threads to work with.

        Raises:
            PosteriorError: The previous posterior is of another size.
            ValueError: The state is of a rule with other statistics.
        """
        return cls(*frame_and_sums(rule, state, previous, threads, unrounded))

    @property
    def size(self) -> int:
        """The number D of Gaussian parameters."""
        return self._frame.size

    def add(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None = None
    ) -> None:
        """Add one client.

        A client of weight 0 takes no part at all, whatever the rule: it is not even looked at.

        Args:
            posterior: The client's posterior; it is read and not kept.
            weight: The client's weight; for a rule whose ``weights_are_fractions``, its fraction of
                all clients' weight.
            generator: The client's own random generator, for a stochastic rule. One key is drawn
                from it, of which every block of parameters makes a generator of its own.

        Raises:
            PosteriorError: The posterior is not valid or has another size. Nothing was added.
            ValueError: The weight is negative or not finite, or a stochastic rule has no generator.
        """
        if not checked_weight(weight):
            return
        member = self._frame.member(posterior, weight, generator)
        if not (member.sound or self._frame.has_sound_values(posterior)):
            posterior.check()
        self._sums.add(self._frame, [member._replace(sound=True)])

    def merge(self, other: Accumulator) -> None:
        """Add, in place, all that another accumulator holds; the other is left as it is.

        Its sums may be taken around another reference: they are re-centred exactly. This
        accumulator's reference, types and previous posterior stay.

        Raises:
            PosteriorError: The other is of another size.
            ValueError: The other is of another rule, or of the same rule with other settings.
        """
        own, others = self._frame, other._frame
        if own.rule != others.rule:
            raise ValueError(f"cannot merge {others.rule!r} into {own.rule!r}")
        own.check_sizes(others.size, others.point_size)
        sums, added = self._sums, other._sums

        def work(part: slice) -> None:
            shift = others.reference[part].astype(np.float64) - own.reference[part]
            moved = own.rule.recentre(tuple(added.statistics[:, part]), added.totals, shift)
            for total, statistic in zip(sums.statistics[:, part], moved, strict=True):
                total += statistic

        over_blocks(own.size, own.threads, work)
        sums.point += added.point
        sums.totals += added.totals

    def result(self) -> Pooled:
        """Return the pooled posterior of all that was added; more may be added afterwards.

        Means and variances that the result's type cannot hold are clipped, variances to its
        smallest normal and its largest finite number; the diagnostic ``clipped-fraction`` tells how
        many. Those that are wrong before they are rounded are an error.

        Raises:
            PosteriorError: Nothing with a positive weight was added, or the rule gives what is no
                posterior: the message names the rule, the first block and how many values are bad.
        """
        return pooled(self._frame, self._sums)

    def state(self) -> State:
        """Return everything but the rule and the previous posterior, as arrays and numbers."""
        return state_of(self._frame, self._sums)
