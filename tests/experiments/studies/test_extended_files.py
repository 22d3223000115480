"""A study's file that extends others says what they say, but for what it says itself."""

import tomllib
from pathlib import Path

import pytest

from bfl.errors import ConfigurationError
from bfl.experiments.studies import Scale, read_study
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import begin, study_in

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
STUDIES = [
    path
    for path in sorted(CONFIGS.rglob("*.toml"))
    if {"extends", "title"} <= tomllib.loads(path.read_text("utf-8")).keys()
]
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
CODE = """
[base]
rounds = 7
learning-rate = 0.5
"""
TABLE = "strategy,partition,accuracy\nws,iid,0.5\nlp,iid,0.6\naalv,iid,0.7\n"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "paper" / "written.toml"
    (path.parent / "published").mkdir(parents=True)
    path.write_text(WRITTEN)
    (path.parent / "published" / "table.csv").write_text(TABLE)
    return path


def extending(written: Path, text: str, folder: str = "code") -> Path:
    path = written.parent.parent / folder / "coded.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_has_what_it_extends_but_for_what_it_says(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "As coded"\n[base]\nrounds = 5\n'
    study = read_study(extending(written, text))
    original = read_study(written)
    assert (study.title, study.name) == ("As coded", "coded")
    assert study.base == {"rounds": 5, "dataset": "digits"}
    for same in ("axes", "rows", "columns", "spread"):
        assert getattr(study, same) == getattr(original, same), same
    assert study.published is not None
    assert original.published is not None
    assert study.published.lines == original.published.lines
    assert len(study.published.lines) == 2


def test_later_files_win_and_the_file_itself_over_all(written: Path) -> None:
    folder = written.parent
    (folder / "code.toml").write_text(CODE)
    text = 'extends = ["written.toml", "code.toml"]\ntitle = "t"\n[base]\nlearning-rate = 0.25\n'
    study = read_study(extending(written, text, "paper"))
    assert study.base == {"rounds": 7, "dataset": "digits", "learning-rate": 0.25}
    text = 'extends = ["code.toml", "written.toml"]\ntitle = "t"\n'
    assert read_study(extending(written, text, "paper")).base["rounds"] == 4
    # What two files extend does not win over either.
    (folder / "b.toml").write_text('extends = "written.toml"\n[base]\nrounds = 20\n')
    (folder / "c.toml").write_text(
        'extends = "written.toml"\n[base]\nseed = 3\n[axes]\npartition = []\n'
    )
    text = 'extends = ["b.toml", "c.toml"]\ntitle = "t"\npublished = false\n'
    study = read_study(extending(written, text, "paper"))
    assert (study.base["rounds"], study.base["seed"]) == (20, 3)
    assert list(study.axes) == ["seed", "strategy"]


def test_axes_are_taken_one_by_one_and_lists_as_a_whole(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "t"\npublished = false\n'
    axes = "[axes]\npartition = []\nseed = [2]\nalpha = [0.5, 1.0]\n"
    study = read_study(extending(written, f'{text}{axes}[[columns]]\nmetric = "brier-score"\n'))
    assert list(study.axes) == ["seed", "strategy", "alpha"]
    assert len(study.runs()) == 1 * 2 * 2
    assert [column.metric for column in study.columns] == ["brier-score"]
    # An empty table takes nothing away.
    study = read_study(extending(written, f"{text}[base]\n# rounds = 3\n[axes]\n"))
    assert (study.base, study.axes) == (read_study(written).base, read_study(written).axes)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_copy_of_every_study_is_the_study(path: Path, tmp_path: Path) -> None:
    """With its axes in their order, which is that of runs, columns and groups."""
    study, folder = read_study(path), StudyFolder(tmp_path)
    begin(folder, study.scaled(Scale({})), {})
    again = study_in(folder)
    assert again.runs() == study.runs()
    assert again.label_columns == study.label_columns
    for same in ("name", "title", "base", "axes", "columns", "orders", "figures"):
        assert getattr(again, same) == getattr(study, same), same
    mine, theirs = (each.published.lines if each.published else {} for each in (again, study))
    assert mine == theirs


EXTENDS = 'extends = "../paper/written.toml"\ntitle = "t"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('extends = "../paper/written.toml"\n', "the key 'title' is missing"),
        (EXTENDS + "spreed = 3\n", r"coded\.toml \(which extends .*written\.toml\)"),
        ('extends = "missing.toml"\ntitle = "t"\n', r"extends 'missing\.toml', and there"),
        ('extends = "coded.toml"\ntitle = "t"\n', r"extends itself: .*coded.*coded"),
        ('title = "t"\n[axes]\nseed = []\n', "axis 'seed' is empty"),
        (EXTENDS + "base = 3\n", r"coded\.toml: base is 3; allowed: a table"),
        *(
            (f'extends = {given}\ntitle = "t"\n', "extends is .*; allowed: the path of a study's")
            for given in ("3", '""', "[1]", "{ a = 1 }")
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, said: str, written: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_study(extending(written, text))


def test_a_link_to_a_file_extends_what_is_beside_the_file(written: Path, tmp_path: Path) -> None:
    path = extending(written, EXTENDS)
    link = tmp_path / "elsewhere" / "deep" / "link.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(path)
    assert read_study(link).base == read_study(path).base


def test_another_published_table_lies_next_to_the_file_and_there_may_be_none(written: Path) -> None:
    written.write_text(WRITTEN + 'notes = ["three numbers are misprints"]\n')
    path = extending(written, f'{EXTENDS}[published]\nfile = "mine.csv"\n')
    (path.parent / "mine.csv").write_text("strategy,partition,accuracy\nws,iid,0.5\nlp,iid,0.6\n")
    table = read_study(path).published
    assert table is not None
    assert table.path == path.parent / "mine.csv"
    assert table.notes == ()
    rows = '[axes]\nstrategy = ["ws"]\n'
    assert read_study(extending(written, f"{EXTENDS}published = false\n{rows}")).published is None
