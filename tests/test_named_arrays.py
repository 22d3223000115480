"""Groups of named arrays, several in one, come apart as they were."""

from bfl.named_arrays import add_prefix, strip_prefix


def test_groups_come_apart_as_they_were() -> None:
    state, optimizer = {"mean": 1, "a.b": 2}, {"mean": 3}
    together = {**add_prefix("state.", state), **add_prefix("optimizer.", optimizer), "round": 4}
    assert len(together) == 4
    assert strip_prefix("state.", together) == state
    assert strip_prefix("optimizer.", together) == optimizer
    assert strip_prefix("nothing.", together) == {}


def test_only_the_first_prefix_is_taken_away() -> None:
    assert strip_prefix("a.", add_prefix("a.", {"a.x": 1})) == {"a.x": 1}
