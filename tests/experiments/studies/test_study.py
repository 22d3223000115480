"""Studies are expanded as they stand, and refused with one message where they cannot be meant."""

import doctest
import re
import tomllib
from itertools import product
from pathlib import Path

import pytest
from small_study import PUBLISHED, STUDY, write_study

from bfl.errors import ConfigurationError
from bfl.experiments.run.resume import configuration_hash
from bfl.experiments.studies import claims, columns, study, table
from bfl.experiments.studies.results import StudyFolder
from bfl.experiments.studies.runner import begin
from bfl.experiments.studies.study import read_study

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def test_a_study_expands_to_rows_times_axes(tmp_path: Path) -> None:
    small = read_study(write_study(tmp_path))
    assert [(cell.labels["rule"], cell.labels["partition"]) for cell in small.cells()] == [
        *(("WS", "iid"), ("WS", "Dirichlet 0.5"), ("NWA", "iid"), ("NWA", "Dirichlet 0.5"))
    ]
    by_hand = [
        f"flipout-{rule}_{partition}_seed-{seed}"
        for seed, partition, rule in product((0, 1), ("iid", "dirichlet-0.5"), ("ws", "nwa"))
    ]
    assert [run.name for run in small.runs] == by_hand
    run = small.runs[3]
    base = {"rounds": 4, "local-epochs": 2, "clients": 3}
    chosen = {"seed": 0, "strategy": "nwa", "partition": "dirichlet", "alpha": 0.5}
    assert run.values == {**base, **chosen}
    labels = {"model": "Flipout", "rule": "NWA", "partition": "Dirichlet 0.5"}
    assert run.cell.labels == labels
    assert run.labels == {**labels, "seed": "0"}


def test_names_stay_when_something_is_added_or_moved(tmp_path: Path) -> None:
    before = {
        run.name: configuration_hash(run.values) for run in read_study(write_study(tmp_path)).runs
    }
    more = (
        STUDY.replace("seed = [0, 1]", "")
        .replace('partition = ["iid",', 'partition = [{ label = "new", alpha = 9.0 }, "iid",')
        .replace("[[rows]]", "seed = [7, 1, 0]\n[[rows]]", 1)
        .replace("[published]\n", "")
        .replace('file = "published.csv"', "")
    )
    more += '[[rows]]\nlabel = { model = "Other", rule = "LP" }\nstrategy = "lp"\n'
    after = {
        run.name: configuration_hash(run.values)
        for run in read_study(write_study(tmp_path, more)).runs
    }
    assert len(after) == 3 * 3 * 3
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(after)


def test_plain_values_and_odd_labels_make_names(tmp_path: Path) -> None:
    text = """
    title = "T"
    [axes]
    alpha = [0.5, 5.0]
    clients = [{ label = "10", clients = 10 }]
    ensemble-average = [true]
    seed = [3]
    weighting = ["equal"]
    [[rows]]
    label = "MC Dropout (n/a)"
    """
    runs = read_study(write_study(tmp_path, text)).runs
    assert [run.name for run in runs] == [
        f"mc-dropout-n-a_alpha-{alpha}_clients-10_ensemble-average-true_equal_seed-3"
        for alpha in ("0.5", "5.0")
    ]
    assert runs[0].labels["row"] == "MC Dropout (n/a)"


FIGURE = '[[figures]]\nname = "f"\nkind = '
CLAIM = '[[claims]]\nmetric = "accuracy"\nbetter = { rule = "WS" }\nworse = { rule = "NWA" }\n'
# What stands in the study, what in its place ("": behind it), and what the refusal names.
REFUSED = [
    (STUDY, "title = ", "small.toml"),
    (STUDY, "[base]\nrounds = 1", "title is missing$"),
    ("decimals", "decimal", r"columns\.0\.decimal.*no key"),
    ("seed = [0, 1]", "seed = []\nalpha = [{}]", "label"),
    *((STUDY, f'title = "T"\nrows = {given}', "rows") for given in ("[]", "3", "[3]")),
    ("seed = [0, 1]", "seed = 3", "axis 'seed'"),
    ('"NWA"', '"ws"', "'flipout-ws_iid_seed-0'"),
    ("rule =", "partition =", "'partition'"),
    ("rounds = 4", 'name = "x"', "no name"),
    ('strategy = "nwa"', 'output-dir = "x"', "no output-dir"),
    ('rule = "NWA"', 'kind = "NWA"', "model, rule.*model, kind"),
    ('"accuracy"', '"acuracy"', "'acuracy'.*'accuracy'"),
    ("title = ", 'name = "../b"\ntitle = ', "name is '../b'"),
    ("", FIGURE + '"learning"', "learning.*learning-curves"),
    ("", CLAIM.replace('"NWA"', '"LP"'), "'LP'"),
    ("", CLAIM.replace('"accuracy"', '"brier"'), "'brier'"),
    ("", CLAIM.replace('{ rule = "WS" }', "{}"), "better"),
    ("", CLAIM.replace('worse = { rule = "NWA" }', ""), "worse.*than"),
    ("", CLAIM.replace('worse = { rule = "NWA" }', 'than = "brier-score"'), "brier-score"),
    ("", CLAIM + "published = [1, 2]", "published"),
    ("published.csv", "no.csv", "no.csv"),
    ('published = "acc"', 'published = "accuracy"', "accuracy.*acc"),
    ('rule = "NWA"', 'rule = "LP"', "rule LP"),
    ("rule =", "aggregation =", "aggregation.*rule"),
]


@pytest.mark.parametrize(("old", "new", "named"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_cannot_be_meant_is_refused(old: str, new: str, named: str, tmp_path: Path) -> None:
    text = STUDY.replace(old, new, 1 if "title" in old else -1) if old else STUDY + new
    with pytest.raises(ConfigurationError) as caught:
        read_study(write_study(tmp_path, text))
    assert re.search(named, str(caught.value), re.DOTALL), str(caught.value)
    assert "small.toml" in str(caught.value) or "published" in str(caught.value) or new


@pytest.mark.parametrize("metric", ["degree-of-spread", "mean-epistemic"])
def test_a_claim_needs_a_column_with_a_better_side(metric: str, tmp_path: Path) -> None:
    text = f'{STUDY}\n[[columns]]\nmetric = "{metric}"\n'
    read_study(write_study(tmp_path, text))
    with pytest.raises(ConfigurationError, match=metric):
        read_study(write_study(tmp_path, text + CLAIM.replace("accuracy", metric)))


@pytest.mark.parametrize(
    ("published", "named"),
    [
        (PUBLISHED + "Flipout,WS,iid,90.5,1.0,0.3\n", "two lines"),
        (PUBLISHED.replace("90.5", "ninety"), "ninety"),
        (PUBLISHED.replace("NWA,iid", "WC,iid"), "rule NWA"),
        ("", "published.csv"),
        ("model,rule,partition\n", "no line for"),
    ],
)
def test_unsound_published_tables_are_refused(published: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=named):
        read_study(write_study(tmp_path, published=published))


def test_published_numbers_have_the_units_of_their_columns(tmp_path: Path) -> None:
    own = '[[rows]]\nlabel = { model = "Mine", rule = "LP" }\nstrategy = "lp"\npublished = false\n'
    text = STUDY.replace('{ label = "Dirichlet', '{ published = false, label = "Dirichlet') + own
    text = text.replace("[published]", '[published]\nleave-out = [{ partition = "Dirichlet 0.5" }]')
    study = read_study(write_study(tmp_path, text))
    assert study.published is not None
    assert [dict(key)["rule"] for key in study.published.lines] == ["WS", "NWA"]
    nwa = study.cells()[2].key
    assert study.published.entry(nwa, "accuracy") == (70.0, 3.0)
    assert study.published.entry(nwa, "negative-log-likelihood") == (None, None)


WRITTEN = """
title = "As written"
name = "written"
spread = "standard-error"
[base]
rounds = 4
dataset = "digits"
[axes]
seed = [0, 1]
partition = ["iid"]
strategy = ["ws", "lp"]
[[columns]]
metric = "accuracy"
published = "accuracy"
[published]
file = "published/table.csv"
leave-out = [{ strategy = "aalv" }]
"""
TABLE = "strategy,partition,accuracy\nws,iid,0.5\nlp,iid,0.6\naalv,iid,0.7\n"
EXTENDS = 'extends = "../paper/written.toml"\ntitle = "t"\n'


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "paper" / "written.toml"
    (path.parent / "published").mkdir(parents=True)
    path.write_text(WRITTEN)
    (path.parent / "published" / "table.csv").write_text(TABLE)
    return path


def extending(written: Path, text: str, name: str = "code/coded.toml") -> Path:
    path = written.parent.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_later_files_win_and_the_own_one_over_all(written: Path) -> None:
    extending(written, "[base]\nrounds = 7\nlearning-rate = 0.5\n", "code/code.toml")
    text = 'extends = ["../paper/written.toml", "code.toml"]\ntitle = "t"\n[base]\nseed = 3\n'
    study = read_study(extending(written, f"{text}[axes]\nseed = []\n"))
    assert study.base == {"rounds": 7, "learning-rate": 0.5, "dataset": "digits", "seed": 3}
    assert (study.name, study.title, study.spread) == ("coded", "t", "standard-error")
    assert list(study.axes) == ["partition", "strategy"]
    assert study.published is not None
    assert len(study.published.lines) == 2, "of the file that names it, beside that file"
    more = 'extends = "coded.toml"\ntitle = "m"\n'
    again = read_study(extending(written, more, "code/more.toml"))
    assert again.base == study.base


def test_axes_are_taken_one_by_one_and_lists_as_a_whole(written: Path) -> None:
    axes = "published = false\n[axes]\npartition = []\nseed = [2]\nalpha = [0.5, 1.0]\n"
    text = f'{EXTENDS}{axes}[[columns]]\nmetric = "brier-score"\n'
    study = read_study(extending(written, text))
    assert list(study.axes) == ["seed", "strategy", "alpha"]
    assert len(study.runs) == 1 * 2 * 2
    assert [column.metric for column in study.columns] == ["brier-score"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('extends = "../paper/written.toml"\n', "title"),
        ('extends = "missing.toml"\ntitle = "t"\n', r"missing\.toml"),
        ('extends = "coded.toml"\ntitle = "t"\n', "extends itself"),
        ('extends = [1]\ntitle = "t"\n', "extends is"),
        (EXTENDS + "base = 3\n", r"coded\.toml: base is 3"),
    ],
)
def test_extensions_that_cannot_be_meant_are_refused(text: str, named: str, written: Path) -> None:
    with pytest.raises(ConfigurationError, match=named):
        read_study(extending(written, text))


STUDIES = [
    path
    for path in sorted(CONFIGS.rglob("*.toml"))
    if {"extends", "title"} <= tomllib.loads(path.read_text("utf-8")).keys()
]


@pytest.mark.parametrize("path", STUDIES[::6], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_copy_of_every_study_is_the_study(path: Path, tmp_path: Path) -> None:
    study, folder = read_study(path), StudyFolder(tmp_path)
    begin(folder, study)
    again = folder.study()
    for same in ("runs", "label_columns", "name", "title", "base", "axes", "columns", "figures"):
        assert getattr(again, same) == getattr(study, same), same
    assert again.claims == study.claims
    mine, theirs = (each.published.lines if each.published else {} for each in (again, study))
    assert mine == theirs


@pytest.mark.parametrize("module", [study, columns, table, claims], ids=lambda m: m.__name__)
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
