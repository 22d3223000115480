"""Every registered preset names components and keys that exist."""

import pytest

from bfl.aggregation.pooling import pooling_rules
from bfl.configuration import resolve
from bfl.learning.priors import priors
from bfl.presets import Preset, presets


@pytest.mark.parametrize("preset", presets.classes(), ids=lambda preset: preset.name)
def test_a_preset_is_described_and_sets_something(preset: type[Preset]) -> None:
    assert preset.values
    assert "Source:" in (preset.__doc__ or "")


def test_partitioned_variational_inference_begins_with_the_prior_and_networks_as_they_are() -> None:
    configuration = resolve({"strategy": "pvi"})
    assert configuration.prior == priors.create("cavity", {"prior-scale": 1.0})
    assert configuration.start.name == "initial-network"
    assert configuration.keys.scale_floor == 0
    # 1 over the number of clients in a round.
    assert configuration.pooling == pooling_rules.create("factor-changes", {"damping": 0.0})
