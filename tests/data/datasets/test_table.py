"""Tables in CSV and Parquet files, written by pandas on the spot."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bfl.data.datasets import Reading, dataset_warnings, load_dataset
from bfl.data.datasets.encoding import (
    Column,
    Encoding,
    add_up,
    finish,
    impossible_column,
    sums_size,
)
from bfl.data.datasets.table import read_table, write_beside
from bfl.errors import BflError, DataError


def rows(**changes: Any) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    columns = {
        "age": generator.normal(50.0, 10.0, 40),
        "stage": generator.choice(["i", "ii", "iii"], 40),
        "site": np.repeat(["north", "south"], 20),
        "visits": np.arange(40),
        "constant": np.full(40, 7.0),
        "outcome": np.tile(["well", "ill"], 20),
        **changes,
    }
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def save(folder: Path, frame: pd.DataFrame, name: str = "some.csv") -> str:
    path = folder / name
    marks = {"sep": ";", "decimal": ","} if name.startswith("european") else {}
    frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path, index=False, **marks)
    return f"table:{path}"


READING = Reading(target="outcome", columns_left_out="site", test_share=0.25)
NUMBERS = Reading(target="age", task="regression")


@pytest.mark.parametrize("name", ["some.csv", "some.parquet", "european.csv"])
def test_numbers_are_standardised_by_training_rows_and_categories_are_one_hot(
    tmp_path: Path, name: str
) -> None:
    frame = rows()
    dataset = load_dataset(save(tmp_path, frame, name), "", READING)
    assert dataset.class_names == ("ill", "well")
    assert dataset.image_shape == (1, 6, 1)
    assert np.bincount(dataset.test_labels).tolist() == [5, 5]
    # A row is found again by its number of visits.
    visits = dataset.train_columns["visits"], dataset.test_columns["visits"]
    assert sorted([*visits[0], *visits[1]]) == list(range(40))
    train = frame.loc[visits[0]]
    assert dataset.encoding == Encoding.of(train.drop(columns=["outcome", "site"]), "")
    np.testing.assert_array_equal(dataset.train_images, dataset.encoding.encode(train))
    assert (np.array(["ill", "well"])[dataset.train_labels] == train["outcome"]).all()
    assert dataset.train_columns["site"].tolist() == train["site"].tolist()


def with_gaps() -> pd.DataFrame:
    frame = rows().drop(columns="outcome")
    age, stage = frame["age"].mask(frame["visits"] % 7 == 0), frame["stage"].astype(object)
    return frame.assign(age=age, stage=stage.where(frame["visits"] % 5 > 0, None))


@pytest.mark.parametrize("unit", [3.0, 1e6])
@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_sums_over_clients_give_the_same_encoding(missing: str, unit: float) -> None:
    """Whatever the deviation of the server's table, by which the sums are taken."""
    frame = with_gaps()
    parts = [frame.iloc[:7], frame.iloc[7:30], frame.iloc[30:]]
    whole = Encoding.of(frame, "", missing).columns
    scale = {column.name: 1.0 if column.categories else unit for column in whole}
    around = [Column(c.name, c.categories, 0.9 * c.mean, scale[c.name]) for c in whole]
    sums = sum(add_up(part, around) for part in parts)
    assert sums.shape == (sums_size(around),)
    assert not impossible_column(sums, around, 40)
    for ours, joint in zip(finish(sums, around, "", missing), whole, strict=True):
        np.testing.assert_allclose(ours.mean, joint.mean, rtol=1e-12)
        np.testing.assert_allclose(ours.deviation, joint.deviation, rtol=1e-9)
        assert replace(ours, mean=0.0, deviation=1.0) == replace(joint, mean=0.0, deviation=1.0)


@pytest.mark.parametrize(
    "change",
    [(0, 1), (1, -1), (1, 41), (2, 1e4), (3, -1e4), (4, 41), (-1, -2), (0, np.nan), (3, np.nan)],
)
def test_sums_that_no_rows_have_are_found(change: tuple[int, float]) -> None:
    columns = Encoding.of(with_gaps(), "", "mean").columns
    sums = add_up(with_gaps(), columns)
    place, value = change
    sums[place] = value
    assert impossible_column(sums, columns, 40)


def with_nan(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(object).where(frame.notna(), np.nan)


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_an_encoding_is_what_scikit_learn_makes_of_the_rows(missing: str) -> None:
    frame = with_gaps()
    encoding = Encoding.of(frame, "rows", missing)
    indicator = missing == "indicator"
    numbers, kinds = ["age", "visits", "constant"], ["stage", "site"]
    of_numbers = make_pipeline(StandardScaler(), SimpleImputer())
    of_kinds = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    theirs = ColumnTransformer([("n", of_numbers, numbers), ("k", of_kinds, kinds)])
    theirs.fit(with_nan(frame))
    new = frame.assign(stage=["iv", None, *frame["stage"][2:]], visits=[np.nan, *range(39)])
    ours = encoding.encode(new)[:, 0, :, 0] / 127.5 - 1
    widths = {
        column.name: (len(column.categories) or 1) + (column.missing == "indicator")
        for column in encoding.columns
    }
    ends = dict(zip(widths, np.cumsum([*widths.values()]), strict=True))
    own = {name: ours[:, ends[name] - width : ends[name]] for name, width in widths.items()}
    gaps = {name for name in widths if indicator and frame[name].isna().any()}
    for name in gaps:
        np.testing.assert_array_equal(own[name][:, -1] > 0.5, new[name].isna())
        own[name] = own[name][:, :-1]
    assert gaps == ({"age", "stage"} if indicator else set())
    expected = theirs.transform(with_nan(new))
    np.testing.assert_allclose(
        np.concatenate([own[name] for name in numbers + kinds], axis=1), expected, atol=1e-6
    )


def test_rows_are_told_how_they_are_unlike_the_training_rows() -> None:
    frame = rows()[["age", "stage"]]
    encoding = Encoding.of(frame, "rows", "mean")
    column = encoding.columns[0]
    ends = [column.mean + times * column.deviation for times in (-6.001, 5.999, 6.001)]
    ages, stages = [*ends, np.nan, 50.0, np.nan], ["i", "ii", "iv", "ii", None, None]
    new = pd.DataFrame({"age": ages, "stage": stages})
    found = encoding.row_warnings(new)
    assert [[each.split()[0] for each in row] for row in found[:3]] == [
        *(["age"], [], ["age", "stage"])
    ]
    assert found[3:5] == [(), ()]  # a missing value is as the key missing says
    assert len(found[5]) == 1  # but of a row without any the network knows nothing


def test_a_folder_says_which_rows_are_for_testing(tmp_path: Path) -> None:
    frame = rows()
    frame[:32].to_csv(tmp_path / "train.csv", index=False)
    frame[32:][frame.columns[::-1]].to_parquet(tmp_path / "test.parquet")
    dataset = load_dataset(f"table:{tmp_path}", "", READING)
    assert not dataset.split_here
    assert dataset.train_columns["visits"].tolist() == list(range(32))
    assert dataset.test_columns["visits"].tolist() == list(range(32, 40))
    assert dataset.encoding == Encoding.of(frame[:32].drop(columns=["outcome", "site"]), "")
    frame[:8].drop(columns="age").to_parquet(tmp_path / "test.parquet")
    with pytest.raises(BflError, match=r"lacks.*'age'"):
        load_dataset(f"table:{tmp_path}", "", READING)
    (tmp_path / "test.parquet").unlink()
    with pytest.raises(BflError, match="0 tables of test rows"):
        load_dataset(f"table:{tmp_path}", "", READING)


def test_a_site_is_left_out_for_testing(tmp_path: Path) -> None:
    """With all of its rows, of which no mean or category of the others knows anything."""
    frame = rows(age=np.where(np.arange(40) < 20, 1000.0, np.arange(40)))
    word, left_out = save(tmp_path, frame), replace(READING, test_sites="site:north")
    dataset = load_dataset(word, "", left_out)
    assert dataset.test_columns["visits"].tolist() == list(range(20))
    assert dataset.train_columns["visits"].tolist() == list(range(20, 40))
    assert dataset.encoding == Encoding.of(frame[20:].drop(columns=["outcome", "site"]), "")
    both = replace(left_out, test_sites="site:north+south")
    for given, named in ((both, "fewer sites"), (replace(both, test_sites="site:norh"), "'north'")):
        with pytest.raises(DataError, match=f"test-sites.*{named}"):
            load_dataset(word, "", given)
    with pytest.raises(BflError, match="test-sites"):
        load_dataset("digits", "", left_out)


def test_rows_that_an_encoding_does_not_fit_are_said_as_they_are() -> None:
    frame = rows().drop(columns=["outcome"])
    encoding = Encoding.of(frame, "rows")
    # Rows by position, whatever a person's frame numbers them by.
    named = frame.assign(age=frame["age"].mask(frame["visits"] > 9)).set_axis([*"ab"] * 20)
    with pytest.raises(DataError, match=r"row 11 .*'age' 30;") as error:
        encoding.encode(named)
    assert "left-out" not in str(error.value)
    with pytest.raises(DataError, match=r"lacks.*'stage'.*'Stages'.*, 'visits';"):
        encoding.encode(frame.rename(columns={"stage": "Stages", "visits": "z"}))
    with pytest.raises(DataError, match=r"row 8 .*'age' holds 'na'"):
        encoding.encode(named.assign(age=["7", *range(6), "n\x1ba", *["x"] * 32]))
    both = frame.assign(age=[np.nan] * 3 + [1.0] * 37, visits=[*range(38), np.nan, np.inf])
    with pytest.raises(DataError, match=r"row 1 .*'age'; .*'age' 3, 'visits' 2"):
        encoding.encode(both)
    strange = frame.assign(stage=["iv"] * 3 + ["v"] + ["i"] * 36)
    (line,) = encoding.unseen(strange)
    assert "'stage' holds 'iv' in 3 of 40 rows, 'v' in 1 of 40" in line
    assert not encoding.unseen(frame)


@pytest.mark.parametrize("value", [0.1, 1e300])
def test_a_constant_is_standardised_to_0_whatever_its_mean_is_rounded_to(value: float) -> None:
    """The deviation of 41 times 0.1 is above 0, and another value would be 10^15 of it."""
    encoding = Encoding.of(pd.DataFrame({"x": np.full(41, value)}), "rows")
    assert encoding.columns[0].deviation == 1.0
    assert (encoding.encode([[value]]) == 127.5).all()


def test_whole_numbers_are_classes_in_their_order(tmp_path: Path) -> None:
    """Wherever they begin, also where a node has seen some of them only."""
    grades = np.tile([10, 2, 30, 2], 10)
    dataset = load_dataset(save(tmp_path, rows(outcome=grades)), "", READING)
    assert dataset.class_names == ("2", "10", "30")
    for labels, columns in (
        (dataset.train_labels, dataset.train_columns),
        (dataset.test_labels, dataset.test_columns),
    ):
        np.testing.assert_array_equal(np.array([2, 10, 30])[labels], columns["outcome"])
    assert dataset.encoding
    known = {"columns": [*map(vars, dataset.encoding.columns)], "class-names": ["2", "10", "30"]}
    told = replace(READING, table_columns=json.dumps(known))
    node = load_dataset(save(tmp_path, rows(outcome=np.maximum(grades, 10))), "", told)
    assert set(node.train_labels) == {1, 2}
    with pytest.raises(BflError, match="class '7'"):
        load_dataset(save(tmp_path, rows(outcome=grades * 0 + 7)), "", told)
    with pytest.raises(BflError, match=r"task=.regression"):
        load_dataset(save(tmp_path, pd.DataFrame({"x": range(202), "target": range(202)}), "n.csv"))


def test_a_key_says_what_columns_become(tmp_path: Path) -> None:
    """A node's few rows are encoded as all are, with the classes of all."""
    whole = load_dataset(save(tmp_path, rows()), "", READING)
    assert whole.encoding
    assert whole.numbered_here
    own = [*map(vars, whole.encoding.columns)]
    known = {"columns": own, "class-names": ["ill", "dead", "well"]}
    word = save(tmp_path, rows().iloc[:8], "node.csv")
    node = load_dataset(word, "", replace(READING, table_columns=json.dumps({"network": known})))
    assert not node.numbered_here
    assert set(node.train_labels) == {0, 2}
    given = rows().iloc[node.train_columns["visits"]]
    np.testing.assert_array_equal(node.train_images, whole.encoding.encode(given))
    for wrong in (
        "3",
        "[" * 100_000,
        json.dumps({**known, "columns": own + own[:1]}),
        json.dumps({**known, "class-names": ["x", "y", "x"]}),
        json.dumps({**known, "columns": [{**own[0], "deviation": 0.0}]}),
    ):
        with pytest.raises(BflError, match="table-columns"):
            load_dataset(word, "", replace(READING, table_columns=wrong))


def test_a_text_among_decimal_commas_is_named_and_a_run_and_its_predictions_read_alike(
    tmp_path: Path,
) -> None:
    """Whatever else new rows hold; what is predicted has the marks of the file with them."""
    path = tmp_path / "new.csv"
    for place, stray in ((3, "k.A."), (39, "3.5")):
        ages = [stray if n == place else f"{n % 8},50" for n in range(40)]
        dataset = load_dataset(save(tmp_path, rows(age=ages), "european.csv"), "", READING)
        (said,) = [line for line in dataset_warnings(dataset) if "'age'" in line]
        assert all(word in said for word in ("39 of 40", f"row {place + 1} "))
        rows(age=ages)[:3].to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig")
        assert not dataset.encoding.unseen(read_table(path, dataset.encoding))
        assert not dataset.encoding.unseen(read_table(tmp_path / "european.csv", dataset.encoding))
    written = write_beside(path, pd.DataFrame({"age": [0.25] * 3})).decode("utf-8").split("\n")
    assert written[0].startswith("\ufeffage (given);stage;")
    assert [line.split(";")[0::6] for line in written[1:4]] == [[age, "0,25"] for age in ages[:3]]
    numbers = load_dataset(save(tmp_path, rows(), "european.csv"), "", READING).encoding
    rows(age=["7,5", "NA", "hoch", *ages[3:]]).to_csv(path, index=False, sep=";", decimal=",")
    with pytest.raises(DataError, match=r"row 3 .*'age' holds 'hoch'"):
        numbers.encode(read_table(path, numbers))
    with pytest.raises(DataError, match=r"'age': 39 of 40 .* row 1 .*'hoch'"):
        load_dataset(save(tmp_path, rows(age=["hoch", *(n % 25 for n in range(39))])), "", READING)
    far = pd.concat([rows(), rows(), rows(visits=[*range(39), 1e7])])
    said = dataset_warnings(load_dataset(save(tmp_path, far), "", READING))
    assert [line for line in said if "visits has 1 of 120 beyond" in line]
    wide = pd.concat([rows()] * 4 + [rows(visits=[*range(39), 1e7])] * 4)
    kinds = [*["1", "2", "3", "4"] * 9, *"xxxx"] * 8  # which need no word on what is no number
    said = dataset_warnings(load_dataset(save(tmp_path, wide.assign(stage=kinds)), "", READING))
    assert not [line for line in said if "visits" in line or "stage" in line]
    many = rows(outcome=np.arange(40) % 20)
    assert [w for w in load_dataset(save(tmp_path, many), "", READING).said if "regression" in w]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ('"of it, in cm, a";b\n1,5;2\n2,5;3\n', [1.5, 2]),
        ('"x; y; z",b\n1.5,2\n', [1.5, 2]),
        ("a, in cm;b, in kg\n1,5;2,5\n3,5;4,5\n", [1.5, 2.5]),
        ('\n"a\nb"\tc\n1\t2\n', [1, 2]),
        ("a;b\n1.234;2,5\n999;3,5\n", ["1.234 (with a point)", 2.5]),
        ("a;b\n0.123;2,5\n999;3,5\n", [0.123, 2.5]),
        ("prediction,prediction (given)\n1,2\n", [1, 2]),
    ],
)
def test_the_marks_of_a_file_are_found_whatever_its_names_hold(
    tmp_path: Path, text: str, first: list[Any]
) -> None:
    """A thousand may have a point, where other numbers have a comma; it is none without."""
    (path := tmp_path / "some.csv").write_text(text, encoding="utf-8")
    assert read_table(path).iloc[0].tolist() == first
    path.write_bytes(write_beside(path, pd.DataFrame({"prediction": [0.5]})))
    assert read_table(path)["prediction"].iloc[0] == 0.5


def test_zeros_before_whole_numbers_are_kept(tmp_path: Path) -> None:
    """In a CSV as in a Parquet file, of classes and of inputs; not in numbers with a point."""
    codes = ["001", "01", "1", "-02"] * 10
    frame = rows(outcome=codes, stage=codes, dose=["01.5", "2"] * 20)
    for name in ("some.csv", "some.parquet"):
        dataset = load_dataset(save(tmp_path, frame, name), "", READING)
        assert dataset.class_names == ("-02", "001", "01", "1")
        assert dataset.encoding
        columns = {column.name: column for column in dataset.encoding.columns}
        assert columns["stage"].categories == ("-02", "001", "01", "1")
        assert not columns["dose"].categories


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        ([Decimal("1.5"), Decimal("2.25")], ()),
        (["1.5", " 2 ", "NA"], ()),
        ([True, None], ()),
        (["true", "False"], ()),
        (["NA", "EU"], ("EU", "NA")),
        ([" red", "red\ufeff", "red\u200b", "e\u0301", "\u00e9"], ("red", "\u00e9")),
        (["", "x", None, "x"], ("x",)),
    ],
)
def test_columns_hold_numbers_or_normalized_texts(
    tmp_path: Path, values: list[Any], categories: tuple[str, ...]
) -> None:
    frame = rows(dose=(values * 40)[:40], visits=None, constant=None, stage=None)
    reading = replace(READING, missing="mean")
    dataset = load_dataset(save(tmp_path, frame, "some.parquet"), "", reading)
    assert dataset.encoding
    assert dataset.encoding.columns[-1].name == "dose"
    assert dataset.encoding.columns[-1].categories == categories


def test_categories_of_test_rows_alone_are_named(tmp_path: Path) -> None:
    for part, kinds in (("train", "mf"), ("test", "nf")):
        frame = pd.DataFrame({"sex": [*kinds] * 20, "x": np.arange(40) % 9, "target": [0, 1] * 20})
        frame.to_csv(tmp_path / f"{part}.csv", index=False)
    dataset = load_dataset(f"table:{tmp_path}")
    assert [line for line in dataset_warnings(dataset) if "'n'" in line]
    assert not load_dataset(f"table:{tmp_path}", "", Reading(table_columns="summed")).said
    frame.assign(x=["n-k", *[3, 7, 9] * 13]).to_csv(tmp_path / "test.csv", index=False)
    (said,) = [w for w in dataset_warnings(load_dataset(f"table:{tmp_path}")) if "become" in w]
    assert all(word in said for word in ("'x'", "79 of 80", "row 41 "))
    assert "n-k" not in said, "a cell is a patient's"
    assert (dataset.test_images[::2, 0, :2, 0] == 127.5).all()
    frame.assign(x=[None, *range(39)]).to_csv(tmp_path / "test.csv", index=False)
    filled = load_dataset(f"table:{tmp_path}", "", Reading(missing="mean"))
    assert any(said.endswith("of 80 rows: x 1") for said in dataset_warnings(filled))
