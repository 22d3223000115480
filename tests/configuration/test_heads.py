"""Heads go with no exchange that hides what clients measure, which is said whatever is given."""

from typing import Any

import pytest
from choosing import PRIVATE

from bfl.configuration import resolve
from bfl.errors import ConfigurationError

SECRET: dict[str, dict[str, Any]] = {
    "masked": {"exchange": "masked"},
    "noise of clients": {"outgoing": "clip+noise", **PRIVATE},
    "noise of the server": {
        "outgoing": "clip+noise",
        "noise-at": "server",
        "pooling": "log-variance-averaging",
        **PRIVATE,
    },
    "noise on examples": {
        "example-privacy": "dp-sgd",
        "round-retries": 0,
        "normalization": "group",
    },
}


@pytest.mark.parametrize("evaluated_by", ["server", "clients"])
@pytest.mark.parametrize("shared", ["body", "convolutions"])
@pytest.mark.parametrize("secret", SECRET.values(), ids=SECRET)
def test_no_value_of_another_key_makes_them_go_together(
    secret: dict[str, Any], shared: str, evaluated_by: str
) -> None:
    """Two refusals that each name the other's remedy would send a person in a circle."""
    given = {"strategy": "fedavg", "shared": shared, "evaluated-by": evaluated_by, **secret}
    with pytest.raises(ConfigurationError) as caught:
        resolve(given)
    [line] = [line for line in str(caught.value).splitlines() if "secrecy" in line]
    assert line.startswith(f"shared '{shared}'")
    assert "evaluated-by" not in line
    assert line.endswith('allowed: exchange="direct" and no noise')


def test_each_goes_without_the_other() -> None:
    heads = {"strategy": "fedavg", "shared": "body", "evaluated-by": "clients"}
    quiet = {"outgoing": "clip+noise", "noise-multiplier": 0.0}
    for secret in SECRET.values():
        assert not resolve({"strategy": "nwa", **secret}).shared.partial
    assert all(resolve({**heads, **more}).shared.partial for more in ({}, quiet))
