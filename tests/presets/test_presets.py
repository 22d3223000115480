"""Every registered preset names components and keys that exist."""

import pytest

from bfl.presets import Preset, presets


@pytest.mark.parametrize("preset", presets.classes(), ids=lambda preset: preset.name)
def test_a_preset_is_described_and_sets_something(preset: type[Preset]) -> None:
    assert preset.values
    assert "Source:" in (preset.__doc__ or "")
