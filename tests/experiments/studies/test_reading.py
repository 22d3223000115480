"""Studies are expanded as they stand, and refused with one message where they cannot be meant."""

import doctest
import re
from itertools import product
from pathlib import Path

import pytest
from small_study import PUBLISHED, STUDY, write_study

from bfl.errors import ConfigurationError
from bfl.experiments.studies import columns, read_study, scale, study, table


def test_a_study_expands_to_rows_times_axes(tmp_path: Path) -> None:
    small = read_study(write_study(tmp_path))
    runs, cells = small.runs(), small.cells()
    assert [(cell.labels["rule"], cell.labels["partition"]) for cell in cells] == [
        *(("WS", "iid"), ("WS", "Dirichlet 0.5"), ("NWA", "iid"), ("NWA", "Dirichlet 0.5"))
    ]
    by_hand = [
        f"flipout-{rule}_{partition}_seed-{seed}"
        for seed, partition, rule in product((0, 1), ("iid", "dirichlet-0.5"), ("ws", "nwa"))
    ]
    assert [run.name for run in runs] == by_hand
    run = runs[3]
    base = {"rounds": 4, "local-epochs": 2, "clients": 3}
    chosen = {"seed": 0, "strategy": "nwa", "partition": "dirichlet", "alpha": 0.5}
    assert run.values == {**base, **chosen}
    labels = {"model": "Flipout", "rule": "NWA", "partition": "Dirichlet 0.5"}
    assert run.cell.labels == labels
    assert run.labels == {**labels, "seed": "0"}


def test_names_stay_when_something_is_added_or_moved(tmp_path: Path) -> None:
    """What is done under a name is found again under it."""
    before = {run.name: run.values for run in read_study(write_study(tmp_path)).runs()}
    more = (
        STUDY.replace("seed = [0, 1]", "")
        .replace('partition = ["iid",', 'partition = [{ label = "new", alpha = 9.0 }, "iid",')
        .replace("[[rows]]", "seed = [7, 1, 0]\n[[rows]]", 1)
        .replace("[published]\n", "")
        .replace('file = "published.csv"', "")
    )
    more += '[[rows]]\nlabel = { model = "Other", rule = "LP" }\nstrategy = "lp"\n'
    after = {run.name: run.values for run in read_study(write_study(tmp_path, more)).runs()}
    assert len(after) == 3 * 3 * 3
    assert {name: after[name] for name in before} == before


def test_plain_values_and_odd_labels_make_names(tmp_path: Path) -> None:
    text = """
    title = "T"
    [axes]
    alpha = [0.5, 5.0]
    clients = [{ label = "10", clients = 10 }]
    dropout-output = [true]
    weighting = ["equal"]
    [[rows]]
    label = "MC Dropout (n/a)"
    """
    runs = read_study(write_study(tmp_path, text)).runs()
    assert [run.name for run in runs] == [
        f"mc-dropout-n-a_alpha-{alpha}_clients-10_dropout-output-true_equal"
        for alpha in ("0.5", "5.0")
    ]
    assert runs[0].labels["row"] == "MC Dropout (n/a)"


def test_keys_of_the_base_may_stand_in_their_sections(tmp_path: Path) -> None:
    text = 'title = "T"\n[base]\nclients = 3\n[base.data]\nalpha = 0.5\n'
    text += "[base.training]\nlocal-lr-decay = 2"
    study = read_study(write_study(tmp_path, text, None))
    assert study.base == {"clients": 3, "alpha": 0.5, "local-lr-decay": 2} == study.runs()[0].values
    text = text.replace("local-lr-decay = 2", "alpha = 0.5")
    with pytest.raises(ConfigurationError, match=r"'alpha' stands in \[training\]"):
        read_study(write_study(tmp_path, text, None))


def test_a_study_needs_neither_rows_nor_axes(tmp_path: Path) -> None:
    (run,) = read_study(write_study(tmp_path, 'title = "T"\n[base]\nrounds = 1\n')).runs()
    assert (run.name, run.values) == ("run", {"rounds": 1})


FIGURE = '[[figures]]\nname = "f"\nkind = '
# What stands in the study, what in its place ("": behind it), and what the refusal says.
REFUSED = [
    (STUDY, "title = ", "not TOML"),
    (STUDY, "[base]\nrounds = 1", "title.*missing"),
    ("[axes]", "[axis]", "unknown key 'axis'.*'axes'"),
    ("[axes]", "[training]\nrounds = 2\n[axes]", r"'training'.*\[base\]"),
    ("decimals", "decimal", r"unknown key 'decimal'.*'decimals'.*columns\.0"),
    ("file =", "fil =", "unknown key 'fil'.*did you mean 'file'"),
    ("seed = [0, 1]", "seed = []", "axis 'seed' is empty"),
    (STUDY, 'title = "T"\nrows = []', "rows is empty"),
    ("seed =", "sed =", "axis 'sed'.*did you mean 'seed'"),
    ('"NWA"', '"ws"', "2 runs have the name 'flipout-ws_iid_seed-0'"),
    ("[0, 1]", "[0, 0]", "2 runs have the name"),
    ('strategy = "nwa"', "alpha = 1.0", "axis 'partition' and the rows both set 'alpha'"),
    ("rule =", "partition =", "label column 'partition'"),
    ("rounds = 4", 'name = "x"', "base sets name"),
    ('strategy = "nwa"', 'output-dir = "x"', "the rows: output-dir"),
    ('label = "Dirichlet 0.5", ', "", "axis 'partition'.*label"),
    (STUDY, 'title = "T"\n[[rows]]\nstrategy = "ws"', "row 1.*label"),
    ('rule = "NWA"', 'kind = "NWA"', "model, rule.*model, kind"),
    ('"accuracy"', '"acuracy"', "'acuracy'.*'accuracy'"),
    ('"accuracy"', '"rmse"', "'rmse'.*'root-mean-squared-error'"),
    ("title = ", 'spread = "range"\ntitle = ', "spread.*standard-deviation"),
    ("title = ", 'name = "a/b"\ntitle = ', "name is 'a/b'"),
    ("", FIGURE + '"learning"', "'learning'.*learning-curves"),
    ("", FIGURE + '"retention-curves"\nbye = ["aleatoric"]', "unknown key 'bye'.*'by'"),
    ("", FIGURE + '"retention-curves"\nby = ["entropie"]', "'entropie'.*predictive-entropy"),
    ("", FIGURE + '"learning-curves"\nrows = { rule = ["LP"] }', "no row has the rule 'LP'"),
    ("", FIGURE + '"learning-curves"\nrows = 3', r"figures\.0\.rows is 3"),
    ("published.csv", "no.csv", "no.csv.*cannot be read"),
    ('published = "acc"', 'published = "accuracy"', "no column accuracy.*acc, sd"),
    ('rule = "NWA"', 'rule = "LP"', "no line for.*rule LP.*nothing for its line.*rule NWA"),
    ("rule =", "aggregation =", "no column aggregation.*model, rule, partition"),
    ("", 'leave-out = [{ aggregation = "NWA" }]', "no column aggregation.*rule"),
]


@pytest.mark.parametrize(("old", "new", "said"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_cannot_be_meant_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    text = STUDY.replace(old, new, 1 if "title" in old else -1) if old else STUDY + new
    with pytest.raises(ConfigurationError) as caught:
        read_study(write_study(tmp_path, text))
    assert re.search(said, str(caught.value), re.DOTALL), str(caught.value)
    assert "small.toml" in str(caught.value) or "published" in str(caught.value)


@pytest.mark.parametrize(
    ("published", "word"),
    [
        (
            PUBLISHED + "Flipout,WS,iid,90.5,0.01,0.3\n",
            "model Flipout, partition iid, rule WS stands there twice",
        ),
        (PUBLISHED.replace("90.5", "ninety"), "acc is 'ninety'"),
        (PUBLISHED.replace(",0.3", ""), "line 2: not 6 cells"),
        (PUBLISHED.replace("NWA,iid", "WC,iid"), "rule WC"),
        ("", "published.csv"),
        ("model,rule,partition\n", "no column acc"),
    ],
)
def test_unsound_published_tables_are_refused(published: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=word):
        read_study(write_study(tmp_path, published=published))


def test_what_is_not_published_can_be_said(tmp_path: Path) -> None:
    """A row of one's own, a value of one's own, and lines that one leaves out."""
    own = '[[rows]]\nlabel = { model = "Mine", rule = "LP" }\nstrategy = "lp"\npublished = false\n'
    text = STUDY.replace('{ label = "Dirichlet', '{ published = false, label = "Dirichlet') + own
    text = text.replace("[published]", '[published]\nleave-out = [{ partition = "Dirichlet 0.5" }]')
    table = read_study(write_study(tmp_path, text)).published
    assert table is not None
    assert [dict(key)["rule"] for key in table.lines] == ["WS", "NWA"]


def test_published_numbers_have_the_units_of_their_columns(tmp_path: Path) -> None:
    small = read_study(write_study(tmp_path))
    assert small.published is not None
    nwa = small.cells()[2]
    accuracy = small.published.entry(nwa.key, "accuracy")
    assert (accuracy.value, accuracy.spread) == (70.0, 3.0)
    assert small.published.entry(nwa.key, "negative-log-likelihood").value is None


def test_a_label_may_be_a_number_and_other_numbers_are_passed_over(tmp_path: Path) -> None:
    text = """
    title = "T"
    [axes]
    alpha = [0.5]
    [[columns]]
    metric = "accuracy"
    published = "acc"
    [published]
    file = "published.csv"
    """
    published = "alpha,acc,other\n0.5,90.0,1.25\n"
    table = read_study(write_study(tmp_path, text, published)).published
    assert table is not None
    assert table.entry((("alpha", "0.5"),), "accuracy").value == 90.0


@pytest.mark.parametrize("module", [study, scale, columns, table], ids=lambda m: m.__name__)
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
