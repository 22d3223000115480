"""Groups of named arrays, several in one, come apart as they were."""

from bfl.named_arrays import behind, under


def test_groups_come_apart_as_they_were() -> None:
    state, optimizer = {"mean": 1, "a.b": 2}, {"mean": 3}
    together = {**under("state.", state), **under("optimizer.", optimizer), "round": 4}
    assert len(together) == 4
    assert behind("state.", together) == state
    assert behind("optimizer.", together) == optimizer
    assert behind("nothing.", together) == {}


def test_only_the_first_prefix_is_taken_away() -> None:
    assert behind("a.", under("a.", {"a.x": 1})) == {"a.x": 1}
