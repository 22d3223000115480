"""A run keeps what of its configuration was given: another strategy brings its own values."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import Field

from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.experiments.run.resume import open_run
from bfl.learning.priors import FlatPrior, priors


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """Return the configuration of a run by FedBE, of which two values were given."""
    given = {"strategy": "fedbe", "seed": 3, "distillation-optimizer": "swa", "name": "first"}
    configuration = resolve({**given, "output-dir": str(tmp_path)})
    with open_run(configuration, "first", {}):
        pass
    return tmp_path / "first" / "config.toml"


def test_another_strategy_sets_aside_what_only_the_former_one_gave(distilled: Path) -> None:
    again = resolve(read_run_config([str(distilled), "rounds=4"]))
    assert again.values["student-augmentation"] == "crop-flip"
    other = read_run_config([str(distilled), 'strategy="one-round-ensemble"'])
    # What somebody gave stays, also where it is what the former strategy would have given.
    assert other["distillation-optimizer"] == "swa"
    assert other["seed"] == 3
    alone = resolve({**other, "strategy": "one-round-ensemble"})
    assert resolve(other) == alone
    own = {"strategy", "seed", "distillation-optimizer", "output-dir", "closing"}
    assert other.keys() <= own


def test_a_former_parts_default_of_a_shared_setting_goes_with_it(tmp_path: Path) -> None:
    former = resolve({"strategy": "fedadagrad", "output-dir": str(tmp_path)})
    with open_run(former, "first", {}):
        pass
    file = str(tmp_path / "first" / "config.toml")
    changed = resolve(read_run_config([file, 'strategy="ws" server-optimizer="momentum"']))
    assert changed == former.replace(strategy="ws", **{"server-optimizer": "momentum"})
    plain = resolve({"strategy": "ws", "server-optimizer": "momentum"})
    assert changed.values["server-learning-rate"] == plain.values["server-learning-rate"]


def test_what_a_run_has_beyond_what_was_given_is_taken_too(distilled: Path) -> None:
    """A run may have been given more rounds; another version may have had other defaults."""
    text = distilled.read_text(encoding="utf-8").replace("rounds = 10\n", "rounds = 12\n")
    distilled.write_text(text, encoding="utf-8")
    assert read_run_config([str(distilled), 'strategy="ws"'])["rounds"] == 12


@contextmanager
def prior_of_width(name: str, default: float) -> Iterator[None]:
    """Register a prior that reads a setting of which others have another default."""

    class Wide(FlatPrior):
        """A prior."""

        shared_width: float = Field(default, description="a width")

    priors.register(name)(Wide)
    try:
        yield
    finally:
        priors.withdraw(lambda component: component is Wide)


@pytest.mark.parametrize("first", ["flat", "narrow", "wide"])
def test_parts_of_three_keys_share_a_setting_whatever_their_defaults(first: str) -> None:
    """Clients resolve the values that a server sends: there is one value of a key."""
    with prior_of_width("narrow", 1.0), prior_of_width("wide", 2.0):
        given = {"prior": first, "personal-prior": "narrow", "pretrain-prior": "wide"}
        configuration = resolve(given)
        width = configuration.values["shared-width"]
        if first != "flat":  # the registry's own key comes first
            assert width == {"narrow": 1.0, "wide": 2.0}[first]
        for prior in (configuration.personal_prior, configuration.pretrain_prior):
            assert prior.model_dump(by_alias=True) == {"shared-width": width}
        assert resolve(configuration.values) == configuration
