"""A study's file that extends others says what they say, but for what it says itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bfl.errors import ConfigurationError
from bfl.experiments.studies import Scale, read_study
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.scale import begin

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
    (written.parent / "code.toml").write_text(CODE)
    files = '["written.toml", "code.toml"]'
    text = f'extends = {files}\ntitle = "t"\n[base]\nlearning-rate = 0.25\n'
    study = read_study(extending(written, text, "paper"))
    assert study.base == {"rounds": 7, "dataset": "digits", "learning-rate": 0.25}
    text = 'extends = ["code.toml", "written.toml"]\ntitle = "t"\n'
    assert read_study(extending(written, text, "paper")).base["rounds"] == 4


def test_axes_are_taken_one_by_one_and_an_empty_one_is_left_out(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "t"\npublished = false\n'
    text += "[axes]\npartition = []\nseed = [2]\nalpha = [0.5, 1.0]\n"
    study = read_study(extending(written, text))
    assert list(study.axes) == ["seed", "strategy", "alpha"]
    assert len(study.runs()) == 1 * 2 * 2


def test_an_empty_axis_of_a_file_that_extends_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alone.toml"
    path.write_text('title = "t"\n[axes]\nseed = []\n')
    with pytest.raises(ConfigurationError, match="axis 'seed' is empty"):
        read_study(path)


def test_a_list_is_replaced_as_a_whole(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "t"\n[[columns]]\nmetric = "brier-score"\n'
    study = read_study(extending(written, text))
    assert [column.metric for column in study.columns] == ["brier-score"]


def test_a_table_of_ones_own_is_looked_up_beside_ones_own_file(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "t"\n[published]\nfile = "mine.csv"\n'
    text += 'leave-out = [{ strategy = "aalv" }]\n'
    path = extending(written, text)
    (path.parent / "mine.csv").write_text(TABLE.replace("0.5", "0.9"))
    table = read_study(path).published
    assert table is not None
    assert table.path == path.parent / "mine.csv"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_copy_of_every_study_is_the_study(path: Path, tmp_path: Path) -> None:
    """With its axes in their order, which is that of runs, columns and groups."""
    study, folder = read_study(path), StudyFolder(tmp_path)
    begin(folder, Scale({}).apply(study), {})
    again = study_in(folder).study
    assert again.runs() == study.runs()
    assert again.label_columns == study.label_columns
    for same in ("name", "title", "base", "axes", "columns", "orders", "figures"):
        assert getattr(again, same) == getattr(study, same), same
    mine, theirs = (each.published.lines if each.published else {} for each in (again, study))
    assert mine == theirs


def test_a_title_is_not_taken_from_another_file(written: Path) -> None:
    with pytest.raises(ConfigurationError, match="the key 'title' is missing"):
        read_study(extending(written, 'extends = "../paper/written.toml"\n'))


def test_a_fault_names_the_file_and_what_it_extends(written: Path) -> None:
    written.write_text(WRITTEN.replace("spread", "spreed"))
    path = extending(written, 'extends = "../paper/written.toml"\ntitle = "t"\n')
    with pytest.raises(ConfigurationError, match=r"coded\.toml \(which extends .*written\.toml\)"):
        read_study(path)


def test_files_that_extend_each_other_are_refused(written: Path) -> None:
    path = extending(written, 'extends = "../paper/written.toml"\ntitle = "t"\n')
    written.write_text('extends = "../code/coded.toml"\n' + WRITTEN)
    with pytest.raises(ConfigurationError, match=r"extends itself: .*coded.*written.*coded"):
        read_study(path)


@pytest.mark.parametrize("given", ["3", '""', "[1]", "{ a = 1 }"])
def test_what_is_no_path_is_refused(written: Path, given: str) -> None:
    path = extending(written, f'extends = {given}\ntitle = "t"\n')
    with pytest.raises(ConfigurationError, match=r"extends is .*; allowed: the path of a study's"):
        read_study(path)


def test_a_file_that_is_not_there_is_named(written: Path) -> None:
    path = extending(written, 'extends = "missing.toml"\ntitle = "t"\n')
    with pytest.raises(ConfigurationError, match=r"coded\.toml extends 'missing\.toml', and there"):
        read_study(path)


def test_a_link_to_a_file_extends_what_is_beside_the_file(written: Path, tmp_path: Path) -> None:
    path = extending(written, 'extends = "../paper/written.toml"\ntitle = "t"\n')
    link = tmp_path / "elsewhere" / "deep" / "link.toml"
    link.parent.mkdir(parents=True)
    link.symlink_to(path)
    assert read_study(link).base == read_study(path).base


def test_an_empty_table_takes_nothing_away(written: Path) -> None:
    text = 'extends = "../paper/written.toml"\ntitle = "t"\n[base]\n# rounds = 3\n[axes]\n'
    study = read_study(extending(written, text))
    assert study.base == read_study(written).base
    assert study.axes == read_study(written).axes


def test_what_is_no_table_is_refused_in_any_file(written: Path) -> None:
    (written.parent / "code.toml").write_text("base = 3\n")
    text = 'extends = ["code.toml", "written.toml"]\ntitle = "t"\n'
    with pytest.raises(ConfigurationError, match=r"code\.toml: base is 3; allowed: a table"):
        read_study(extending(written, text, "paper"))


def test_what_two_files_extend_does_not_win_over_either(written: Path) -> None:
    folder = written.parent
    (folder / "b.toml").write_text('extends = "written.toml"\n[base]\nrounds = 20\n')
    (folder / "c.toml").write_text(
        'extends = "written.toml"\n[base]\nseed = 3\n[axes]\npartition = []\n'
    )
    text = 'extends = ["b.toml", "c.toml"]\ntitle = "t"\npublished = false\n'
    study = read_study(extending(written, text, "paper"))
    assert (study.base["rounds"], study.base["seed"]) == (20, 3)
    assert list(study.axes) == ["seed", "strategy"]


def test_another_published_table_has_notes_of_its_own_and_there_may_be_none(
    written: Path,
) -> None:
    written.write_text(WRITTEN + 'notes = ["three numbers are misprints"]\n')
    text = 'extends = "../paper/written.toml"\ntitle = "t"\n'
    path = extending(written, f'{text}[published]\nfile = "mine.csv"\n')
    (path.parent / "mine.csv").write_text("strategy,partition,accuracy\nws,iid,0.5\nlp,iid,0.6\n")
    table = read_study(path).published
    assert table is not None
    assert table.notes == ()
    rows = '[axes]\nstrategy = ["ws"]\n'
    assert read_study(extending(written, f"{text}published = false\n{rows}")).published is None
