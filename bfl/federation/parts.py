"""A part of a method: a server half and a client half, each optional, as pure functions.

A round goes through a part in this order; whatever it does not override does nothing:

| side | function | when |
| --- | --- | --- |
| server | ``begin_server`` | once, before the first round |
| server | ``broadcast`` | in each round, once for all clients |
| client | ``declared_broadcast`` | what ``broadcast`` sends, declared, so that it can be checked |
| client | ``begin_client`` | once, before the client's first round |
| client | ``commit`` | in each round, with what it kept in the last round that was pooled |
| client | ``conclude`` | in each round, after training |
| server | ``declared_replies`` | what ``conclude`` sends, declared, so that it can be checked |
| server | ``fold`` | in each round, with the sums over the pooled clients |

States are arrays by name, and all that a part keeps. Parts of one method with the same
``state_name`` share one state: what they begin with is put together, ``commit`` and ``fold`` get
what the part before has made of it, and each ``conclude`` gets the whole.

**A client's state commits only when the server has pooled the update.** What ``conclude`` keeps is
taken up, by ``commit``, if the server says in a later round that it was pooled; otherwise it is
dropped, and the client is where it was before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior
from bfl.registry import Component

Arrays = Mapping[str, npt.NDArray[Any]]
"""Arrays by name: a state, or what travels besides a posterior."""

GREATEST_BESIDE = 1e6
"""The greatest absolute value besides a posterior, unless it is declared otherwise: far beyond any
gradient or momentum that training survives, and far from what overflows in training with it."""

_OF_A_ROUND = (
    *("begin_server", "broadcast", "declared_broadcast", "declared_replies", "fold"),
    *("begin_client", "conclude", "commit"),
)
"""The functions of a part that a round calls."""


class TwoSidedPart(Component):
    """One part of a method; see the module for the order in which its functions are called.

    Attributes:
        state_name: The name of its state: letters, digits, ``-`` and ``_``. Parts of one method
            that give the same name share one.
        keeps_on_clients: Whether its state has a half on clients, which a lost one is then missed
            of; False for a state of the server alone.
        acts: Whether it overrides any of the functions of a round; no round asks one that does not.
    """

    state_name: ClassVar[str] = ""
    keeps_on_clients: ClassVar[bool] = True
    acts: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a name of a state that would run into another's."""
        super().__pydantic_init_subclass__(**kwargs)
        if not re.fullmatch("[A-Za-z0-9_-]*", cls.state_name):
            example = re.sub("[^A-Za-z0-9_-]+", "-", cls.state_name).strip("-") or "state"
            raise ValueError(
                f"state_name of {cls.__name__} is {cls.state_name!r}; allowed: letters, digits, "
                f"'-' and '_', for instance {example!r}"
            )
        cls.acts = any(
            getattr(cls, name) is not getattr(TwoSidedPart, name) for name in _OF_A_ROUND
        )

    @property
    def client_state_name(self) -> str:
        """The name of what it keeps on clients; empty if that is nothing."""
        return self.state_name if self.keeps_on_clients else ""

    def has(self) -> frozenset[str]:
        """Return whether its clients send anything besides their posteriors."""
        replies = type(self).declared_replies is not TwoSidedPart.declared_replies
        return super().has() | (frozenset({"sent-beside"}) if replies else frozenset())

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        """Return the server's state before the first round, of so many clients in all."""
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        """Return what all clients of a round are sent besides the posterior, by unique names.

        In every round these are the arrays of ``declared_broadcast``, no more and no fewer.
        """
        return {}

    def declared_broadcast(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Return what ``broadcast`` sends; ``posterior``, the global one, gives the sizes."""
        return ()

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Return what every client sends besides its posterior; ``posterior`` gives the sizes."""
        return ()

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        """Return the server's state after a round.

        Args:
            combined: The declared arrays, each summed or averaged over the pooled clients.
        """
        return state

    def begin_client(self, received: Posterior) -> Arrays:
        """Return a client's state before its first round; ``received`` gives the sizes."""
        return {}

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return what the client sends besides its posterior, and what it keeps until it is pooled.

        What is sent are the arrays that ``declared_replies`` declares, no more and no fewer;
        ``state`` is the client's state with which the round began.
        """
        return {}, state

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        """Return the client's state, now that the server has pooled the update.

        Args:
            kept: What ``conclude`` has returned to keep.
            damping: By how much the server has damped the round's change of the posterior.
        """
        return kept


@dataclass(frozen=True)
class DeclaredArray:
    """An array that travels besides a posterior, from a client or from the server.

    One with a value outside [low, high] is refused: a client's, and its update with it; the
    server's, and the client does not train. One client at a bound must not spoil the training of
    the others.

    Attributes:
        name: Its name, unique among the parts of a method.
        combined: How the clients' arrays become one: their ``sum``, or their ``mean`` with the
            weights of the pooling. Says nothing of what the server sends.
        dtype: Its floating-point type.
    """

    name: str
    shape: tuple[int, ...]
    combined: Literal["sum", "mean"] = "sum"
    low: float = -GREATEST_BESIDE
    high: float = GREATEST_BESIDE
    dtype: str = "float32"


def extras_problem(arrays: Arrays, declared: Iterable[DeclaredArray]) -> str:
    """Return what is wrong with arrays besides a posterior; empty: they are as declared."""
    expected = {array.name: array for array in declared}
    for name in sorted(arrays.keys() ^ expected.keys()):
        known = ", ".join(f"'{each}'" for each in expected) or "none"
        return f"{'no' if name in expected else 'an'} array '{name}'; declared: {known}"
    for name, given in arrays.items():
        array, form = np.asarray(given), expected[name]
        if array.dtype != np.dtype(form.dtype) or array.shape != form.shape:
            return f"'{name}' as {array.dtype} {array.shape}; declared: {form.dtype} {form.shape}"
        if bad := np.count_nonzero(~np.isfinite(array)):
            return f"'{name}' with {bad} of {array.size} values that are not finite"
        if outside := np.count_nonzero((array < form.low) | (array > form.high)):
            bounds = f"[{form.low:g}, {form.high:g}]"
            return f"'{name}' with {outside} of {array.size} values outside {bounds}"
    return ""


@dataclass(frozen=True)
class Counts:
    """Numbers of clients in a round: selected, pooled, and in all.

    Attributes:
        asked: How many were asked to train.
        server_round: The round, from 1.
    """

    asked: int
    pooled: int
    clients: int
    server_round: int


@dataclass(frozen=True)
class Trained:
    """Local training of a client, for the parts that compute with it.

    Attributes:
        received: The global posterior that the client was sent.
        sent: The posterior that it sends back, after everything that is done to it on its way out.
        broadcast: What the server has sent besides the posterior.
        examples: The client's number of examples N.
        learning_rate: The rate η of each of its steps.
        trainable: (P,) which point parameters training moves by their gradient: not the moving
            statistics of batch normalisation.
        personal: What the client keeps of its personal model; nothing without one.
        head: What it keeps of its network where not all of it travels; nothing where all does.
    """

    received: Posterior
    sent: Posterior
    broadcast: Arrays
    examples: int
    steps: int
    learning_rate: float
    trainable: npt.NDArray[np.bool_]
    personal: Arrays = field(default_factory=dict)
    head: Arrays = field(default_factory=dict)
