"""The server's states of a method's parts: begun empty, and named so that none is another's."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.parts import Arrays, Counts, TwoSidedPart
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.server_state import ServerState

BEGUN = Posterior(np.zeros(2), np.ones(2))


class Counter(TwoSidedPart):
    """A part that has nothing to keep before its first round."""

    name: ClassVar[str] = "counter"
    state_name: ClassVar[str] = "counter"

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        return {"rounds.seen": state.get("rounds.seen", np.array(0)) + 1}


class Nothing(TwoSidedPart):
    """A part that keeps something on clients alone."""

    name: ClassVar[str] = "nothing"
    state_name: ClassVar[str] = "nothing"


class Nameless(TwoSidedPart):
    """A part that does not say where its state is."""

    name: ClassVar[str] = "nameless"

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        return {"sum": np.zeros(2)}


def method(*parts: TwoSidedPart) -> Method:
    return replace(Method.of(resolve({"strategy": "nwa"}, check_data=False)), parts=parts)


def test_a_state_that_begins_empty_is_folded_in_every_round() -> None:
    made = method(Counter(), Nothing())
    state = ServerState.first(BEGUN, 4, made.begin(BEGUN, 4))
    assert not state.parts
    for number in range(1, 4):
        counts = Counts(asked=4, pooled=4, clients=4, server_round=number)
        state = replace(state, parts=made.fold(state.parts, {}, counts))
        again = ServerState.from_arrays(number, BEGUN, state.to_arrays())
        assert list(again.parts) == list(state.parts) == ["counter"]
        assert again.parts["counter"]["rounds.seen"] == number
        state = again


@pytest.mark.parametrize("given", ["a.b", "a b", "a/b", "."])
def test_a_state_has_a_name_that_can_be_told_from_its_arrays(given: str) -> None:
    """'a.b' with the array 'c' would be 'a' with the array 'b.c' after a resume."""
    with pytest.raises(ValueError, match=r"state_name of Dotted is .* for instance '(a-b|state)'"):

        class Dotted(TwoSidedPart):
            state_name: ClassVar[str] = given


def test_a_state_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="part 'nameless' keeps sum on the server and has"):
        method(Nameless()).begin(BEGUN, 4)
