"""A reduction changes what it says and nothing else, and says so."""

from pathlib import Path

import pytest
from small_study import STUDY, scaled_study

from bfl.errors import ConfigurationError
from bfl.experiments.studies import Scale


def test_a_reduction_changes_every_run_and_its_name_stays(tmp_path: Path) -> None:
    full = scaled_study(tmp_path)
    small = scaled_study(tmp_path, "rounds=0.25,local-epochs=0.1,train-examples=0.2,seeds=1")
    by_name = {run.name: run for run in full.runs()}
    assert [run.name for run in small.runs()] == [n for n in by_name if n.endswith("seed-0")]
    for run in small.runs():
        changed = {"rounds": 1, "local-epochs": 1, "train-examples": 0.2}
        assert run.values == {**by_name[run.name].values, **changed}
    assert small.note == (
        "scaled down: local-epochs 2 → 1, rounds 4 → 1, seeds 2 → 1, train-examples all → 0.2"
    )
    assert small.folder_name == "small_local-epochs-0.1_train-examples-0.2"
    assert (full.note, full.folder_name) == ("", "small")
    # A number raises nothing; the default counts where the study is silent.
    small = scaled_study(tmp_path, "rounds=100,seeds=2,mc-samples=7")
    assert {(run.values["rounds"], run.values["mc-samples"]) for run in small.runs()} == {(4, 7)}
    assert "mc-samples 20 → 7" in small.note


def test_a_study_grows_by_seeds_that_its_file_does_not_have(tmp_path: Path) -> None:
    full, more = scaled_study(tmp_path), scaled_study(tmp_path, "seeds=4")
    assert [run.name for run in more.runs()[:8]] == [run.name for run in full.runs()]
    assert [run.values["seed"] for run in more.runs()[8:]] == [2, 2, 2, 2, 3, 3, 3, 3]
    assert more.folder_name == full.folder_name
    assert more.note == "more seeds than the study's file has: 2 → 4"
    assert more.said == f"at the scale of the study's file, {more.note}"
    # As if the file itself had them.
    in_file = scaled_study(tmp_path, text=STUDY.replace("seed = [0, 1]", "seed = [0, 1, 2, 3]"))
    assert more.runs() == in_file.runs()
    assert more.axes == in_file.axes
    less = scaled_study(tmp_path, "rounds=0.5,seeds=3")
    assert less.said == f"scaled down: rounds 4 → 2, {more.note.replace('4', '3')}"
    others = scaled_study(tmp_path, "seeds=4", text=STUDY.replace("[0, 1]", "[1, 7]"))
    assert [run.values["seed"] for run in others.runs()[::4]] == [1, 7, 0, 2]


def test_seeds_that_are_not_known_or_set_other_keys_are_not_added_to(tmp_path: Path) -> None:
    """A further one would lack the key, and be averaged with those that have it."""
    seeds = '[{ label = "a", seed = 0 }, { label = "b", seed = 1 }]'
    assert len(scaled_study(tmp_path, "seeds=3", text=STUDY.replace("[0, 1]", seeds)).runs()) == 12
    for given in (seeds.replace(" }", ", train-examples = 100 }"), seeds.replace("seed", "rounds")):
        text = STUDY.replace("rounds = 4", "").replace("[0, 1]", given)
        assert len(scaled_study(tmp_path, "seeds=2", text=text).runs()) == 8
        with pytest.raises(ConfigurationError, match="--scale: seeds can be at most 2"):
            scaled_study(tmp_path, "seeds=3", text=text)


def test_rows_with_numbers_of_their_own_are_both_named(tmp_path: Path) -> None:
    text = (
        STUDY.replace("rounds = 4", "")
        .replace('strategy = "ws"', 'strategy = "ws"\nrounds = 100')
        .replace('strategy = "nwa"', 'strategy = "nwa"\nrounds = 50')
    )
    small = scaled_study(tmp_path, "rounds=0.1", text=text)
    assert small.note == "scaled down: rounds 100 → 10 and 50 → 5"


@pytest.mark.parametrize(
    ("now", "scale", "then"),
    [
        ("0.5", "train-examples=0.5", 0.25),
        ("1000.0", "train-examples=0.5", 500.0),
        ("1000.0", "train-examples=100", 100.0),
        ("1000.0", "train-examples=5000", 1000.0),
        ("0.0", "train-examples=100", 100.0),
    ],
)
def test_examples_are_shares_or_numbers(now: str, scale: str, then: float, tmp_path: Path) -> None:
    text = STUDY.replace("rounds = 4", f"train-examples = {now}")
    values = {
        run.values["train-examples"] for run in scaled_study(tmp_path, scale, text=text).runs()
    }
    assert values == {then}


@pytest.mark.parametrize(
    ("scale", "word"),
    [
        ("round=0.5", "did you mean 'rounds'"),
        ("rounds", "rounds is ''"),
        ("rounds=0", "rounds is '0'"),
        ("rounds=-1", "share between 0 and 1"),
        ("rounds=1.5", "whole number"),
        ("rounds=half", "'half'"),
        ("rounds=nan", "'nan'"),
        ("rounds=inf", "'inf'"),
        ("rounds=0.5,rounds=0.1", "given twice"),
    ],
)
def test_unsound_scales_are_refused(scale: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        Scale.parse(scale)


def test_what_a_study_has_not_cannot_be_reduced(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no axis 'seed'"):
        scaled_study(tmp_path, "seeds=1", text=STUDY.replace("seed = [0, 1]", ""))
    share = STUDY.replace("rounds = 4", "train-examples = 0.5")
    with pytest.raises(ConfigurationError, match="give a share"):
        scaled_study(tmp_path, "train-examples=100", text=share)


@pytest.mark.parametrize(
    ("schedule", "first"),
    [
        ('schedule = "constant"', True),
        ('schedule = "exponential"\nlr-silent-rounds = 3', True),
        ('schedule = "step"\nlr-milestones = "3,6"\nlr-factors = "0.1,0.01"', True),
        ('schedule = "step"\nlr-milestones = "0.3,0.6"\nlr-factors = "0.1,0.01"', False),
    ],
)
def test_the_rounds_that_are_made_have_the_rates_of_the_first_unless_they_are_shares(
    schedule: str, first: bool, tmp_path: Path
) -> None:
    text = STUDY.replace("rounds = 4", f"rounds = 10\n{schedule}")
    rates = []
    for scale in ("", "rounds=0.5"):
        run = scaled_study(tmp_path / f"scale-{scale}", scale, text=text).runs()[0]
        made = run.configuration
        rounds = made.keys.rounds
        assert made.schedule.depends_on_rounds() is not first
        rates.append([made.schedule.learning_rate(0.1, r, rounds) for r in range(1, rounds + 1)])
    full, reduced = rates
    assert (reduced == full[:5]) is first
