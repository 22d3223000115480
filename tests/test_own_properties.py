"""A part that brings a property of its own, which other parts may have, need or exclude."""

import re
from pathlib import Path

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError

RULE = '''"""A rule that goes with no clients in turn."""

from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule


@pooling_rules.register("mine")
class Mine(LinearPoolRule):
    """A rule."""

    def excludes(self):
        return frozenset({"clients-in-turn"})
'''
TURNS = '''"""Clients in turn, and a weighting that needs them so."""

from bfl.aggregation.weightings.base import weightings
from bfl.aggregation.weightings.equal import Equal
from bfl.federation.sampling import Sampling, samplings
from bfl.registry import Property


@samplings.register("in-turn")
class InTurn(Sampling):
    """One client after the other."""

    def has(self):
        return frozenset({"clients-in-turn"})

    def sample(self, seed, server_round, clients):
        return [(server_round - 1) % clients]


@weightings.register("of-turns")
class OfTurns(Equal):
    """Equal weights, of clients that are asked in turn."""

    brings = {"clients-in-turn": Property("sampling", "clients that are asked in turn")}

    def requires(self):
        return super().requires() | {"clients-in-turn"}
'''


def test_a_part_brings_a_property_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("turns.py").write_text(TURNS, encoding="utf-8")
    given = {"plugins": "turns.py", "weighting": "of-turns"}
    assert resolve({**given, "sampling": "in-turn"}).sampling.name == "in-turn"
    with pytest.raises(ConfigurationError) as caught:
        resolve(given)
    assert str(caught.value).startswith(
        "weighting 'of-turns' needs clients that are asked in turn, which sampling 'random' as it "
        "is set does not give; allowed: sampling in-turn, or weighting "
    )
    resolve({"plugins": "turns.py", "sampling": "in-turn"})
    Path("mine.py").write_text(RULE, encoding="utf-8")
    both = {"plugins": "turns.py, mine.py", "pooling": "mine", "sampling": "in-turn"}
    with pytest.raises(ConfigurationError, match="'mine' goes with no clients that are asked in"):
        resolve(both)


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("clients-in-turn", "samplign", "unknown kind of part 'samplign'; did you mean 'sampling'"),
        ("clients-in-turn", "rounds", "unknown kind of part 'rounds'"),
        ("gaussian", "sampling", "'gaussian', which there is already, as 'Gaussian posteriors'"),
    ],
)
def test_a_property_that_is_brought_has_a_kind_and_a_name_of_its_own(
    name: str, key: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = TURNS.replace("clients-in-turn", name).replace('"sampling", "cl', f'"{key}", "cl')
    Path("turns.py").write_text(code, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        resolve({"plugins": "turns.py"})
    assert "OfTurns ('of-turns') brings the property" in str(caught.value)


MISDECLARED = '''
from bfl.aggregation.refinements import Refined, Refinement, refinements
from bfl.federation.parts import TwoSidedPart


@refinements.register("mine")
class Mine(BASES):
    """A refinement."""

    SETTING: int = 1

    def refine(self, context):
        return Refined(context.pooled, {})
'''


@pytest.mark.parametrize(
    ("bases", "setting", "said"),
    [
        ("Refinement", "local_epochs", "a setting 'local-epochs', a key of every run"),
        ("Refinement", "weighting", "a setting 'weighting', a key of every run"),
        (
            "Refinement, TwoSidedPart",
            "my_steps",
            "clients are not sent the refinement; allowed for a TwoSidedPart",
        ),
    ],
)
def test_a_part_that_would_run_otherwise_than_the_record_says_is_refused(
    bases: str, setting: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = MISDECLARED.replace("BASES", bases).replace("SETTING", setting)
    Path("mine.py").write_text(code, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        resolve({"plugins": "mine.py", "refinement": "mine"})
    assert "Mine ('mine')" in str(caught.value)
