"""Federations whose nodes have tables of their own, and of which nobody has pooled any data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from runs_in_process import make_run

import bfl.engine.serial
from bfl.data.datasets import Dataset, load_dataset
from bfl.data.datasets.encoding import Column, Encoding
from bfl.data.datasets.reading import SUMMED, Reading
from bfl.engine.flower import new_run
from bfl.engine.serial import SerialGrid
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.experiments.results.run_folder import REFUSALS, RunFolder
from bfl.federation.node_description import TABLE_QUERY, TableDescription, compare_tables
from bfl.federation.wire import CONFIG, WireFormatError
from clients import closing
from clients.closing import measure_final_model
from clients.description import describe_table
from strategies.application.tables import _problem

KEYS: dict[str, Any] = {
    "model": "mlp",
    "strategy": "nwa",
    "rounds": 1,
    "local-epochs": 1,
    "mc-samples": 1,
    "evaluate-mc-samples": 1,
    "batch-size": 8,
    "missing": "indicator",
    "columns-left-out": "site",
    "round-retries": 0,
}


def table(node: int, count: int = 40) -> pd.DataFrame:
    """Return rows of which each node has others: other means, gaps, categories and classes."""
    drawn = np.random.default_rng(node)
    age = drawn.normal(50 + 10 * node, 5 + node, count)
    return pd.DataFrame(
        {
            "age": np.where(drawn.random(count) < 0.1 * node, np.nan, age),
            "dose": 1e6 + drawn.normal(0, 1e-2, count),
            "kind": drawn.choice(["a", "b", f"of {node}"], count),
            "site": f"site {node}",
            "score": age / 10 + drawn.normal(0, 1, count),
            "target": np.where(age > 50 + 10 * node, "well", ["ill", "dead"][node % 2]),
        }
    )


Run = Callable[..., tuple[RunFolder, list[Dataset]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Make a run on so many nodes' tables; return its folder and the nodes' data."""

    def make(nodes: int, change: Callable[[int, pd.DataFrame], pd.DataFrame], **keys: Any) -> Any:
        for node in range(nodes + 1):
            change(node, table(node)).to_csv(tmp_path / f"{node}.csv", index=False)

        class Nodes(SerialGrid):
            """Nodes that say of themselves what SuperNodes say, and have a table each."""

            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                for node, context in self._contexts.items():
                    del context.node_config["simulation"]
                    context.node_config["dataset"] = f"table:{tmp_path / str(node)}.csv"

        monkeypatch.setattr(bfl.engine.serial, "SerialGrid", Nodes)
        given = {**KEYS, "dataset": f"table:{tmp_path / '0.csv'}", **keys}
        folder = make_run(given, nodes, tmp_path / "run")
        reading = Reading.of({**folder.config(), "table-columns": SUMMED})
        words = [f"table:{tmp_path / str(node)}.csv" for node in range(1, nodes + 1)]
        return folder, [load_dataset(word, "", reading) for word in words]

    return make


def as_given(node: int, frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def joint_columns(nodes: list[Dataset]) -> tuple[Column, ...]:
    """Return the columns by the training rows of all nodes in one table."""
    every = pd.concat([pd.DataFrame(dict(node.train_columns)) for node in nodes])
    inputs = every[["age", "dose", "kind", "score"]]
    return Encoding.of(inputs.reset_index(drop=True), "all", "indicator").columns


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "exchange"), [(2, "direct"), (3, "masked")])
def test_columns_are_those_of_all_rows_in_one_table(run: Run, nodes: int, exchange: str) -> None:
    folder, data = run(nodes, as_given, exchange=exchange, closing="bayesian-head")
    network = folder.read_json("network.json")
    assert network["class-names"] == ["dead", "ill", "well"]
    for given, joint in zip(network["columns"], joint_columns(data), strict=True):
        ours = Column.from_dict(given)
        assert (ours.name, ours.categories) == (joint.name, joint.categories)
        assert (ours.frequent, ours.missing) == (joint.frequent, joint.missing)
        np.testing.assert_allclose(ours.mean, joint.mean, rtol=1e-9)
        np.testing.assert_allclose(ours.deviation, joint.deviation, rtol=1e-9)
    assert len(folder.rounds()) == 1
    assert any("'dead'" in text and "client 0" in text for text in folder.warnings())
    assert len(folder.predictions()[1]) == 40, "all of the server's own rows"
    measured = folder.read_json("run.json:clients", {})
    if exchange == "masked":  # sums alone leave a client
        assert not measured
        assert any("masked" in text for text in folder.warnings())
    for client in map(int, measured):  # as whoever holds its rows finds by the delivered model
        rows = pd.DataFrame(dict(data[client].test_columns))
        labels = np.array(data[client].class_names)[data[client].test_labels]
        expected = bfl.load(folder.path).evaluate(rows, labels)["metrics"]
        own = measured[str(client)]
        assert own["test-examples"] == len(labels) == 8
        for name in ("accuracy", "negative-log-likelihood"):
            np.testing.assert_allclose(own[f"global-{name}"], expected[name], rtol=1e-5)
    assert len(measured) == (2 if exchange == "direct" else 0)


@pytest.mark.slow
def test_a_number_that_is_predicted_is_standardised_by_all_rows(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot test the final model ends no run."""

    def fail_once(*given: Any) -> Message:
        if given[-1].node.partition_id == 1:
            raise DataError("gone")
        return measure_final_model(*given)

    monkeypatch.setattr(closing, "measure_final_model", fail_once)
    keys = {"task": "regression", "target": "score", "columns-left-out": "site,target"}
    folder, data = run(2, as_given, **keys)
    true = np.concatenate([np.asarray(node.train_targets, np.float64) for node in data])
    target = folder.read_json("network.json")["target"]
    np.testing.assert_allclose(
        [target["mean"], target["deviation"]], [true.mean(), true.std()], rtol=1e-9
    )
    measured = folder.read_json("run.json:clients")
    assert measured.keys() == {"0"}
    assert 0.1 < measured["0"]["global-root-mean-squared-error"] < 10.0, "in its own unit"
    assert "client 1" in (folder.path / REFUSALS).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_with_noise_is_told_the_columns(run: Run) -> None:
    every = pd.concat([table(node) for node in range(3)]).drop(columns=["site", "target"])
    encoding = Encoding.of(every.reset_index(drop=True), "all", "indicator")
    columns = [dict(vars(column)) for column in encoding.columns]
    columns[0]["mean"] = 51.0
    content = {"columns": columns, "class-names": ["dead", "ill", "well"]}
    given = {"example-privacy": "dp-sgd", "table-columns": json.dumps(content)}
    folder, _ = run(2, as_given, **given)
    assert folder.read_json("network.json")["columns"][0]["mean"] == 51.0


def test_sums_that_no_rows_can_have_are_refused() -> None:
    """Also those that are possible by Cauchy and Schwarz, and lead every column to nothing."""
    columns = (Column("age"), Column("kind", ("a", "b")))
    sums = np.array([40, 40, 0, 1e3, 15, 25])
    assert _problem(columns, sums, 40) is None
    sums[3] = 1e300
    assert _problem(columns, sums, 40)


@pytest.mark.parametrize("name", ["\x1b[2J", "1" * 5000])
def test_names_that_no_table_needs_are_refused(name: str) -> None:
    for columns, classes in (({name: ()}, ()), ({"x": (name,)}, ()), ({"x": ()}, (name,))):
        content = TableDescription(columns, classes).to_content()
        with pytest.raises(WireFormatError):
            TableDescription.from_content(content)


@pytest.mark.parametrize(
    ("change", "keys", "named"),
    [
        (lambda node, frame: frame.drop(columns="dose") if node == 2 else frame, {}, "'dose'"),
        (lambda node, frame: frame.assign(dose="x") if node == 2 else frame, {}, "'dose'"),
        (lambda n, f: f.replace({"target": {"well": "Well "}}) if n == 2 else f, {}, "'Well'"),
        (as_given, {"example-privacy": "dp-sgd"}, "own data"),
    ],
)
def test_tables_that_do_not_go_together_are_refused(
    run: Run, change: Any, keys: dict[str, Any], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BflError, match=named) as error:
        run(2, change, **keys, **{"node-timeout": 5.0})
    if not keys:  # the second client's operator is told as well
        assert "client 1" in str(error.value)
        assert named in capfd.readouterr().err


def test_names_that_differ_in_capitals_or_spaces_alone_are_pointed_out() -> None:
    def described(*kinds: str) -> TableDescription:
        return TableDescription({"kind": kinds, "age": ()}, ("no", "yes", "YES"))

    server = described("a", "B")
    tables = {"north": described("a", "b c"), "south": described("B C"), "west": described("A")}
    problems, (first, second) = compare_tables(server, tables)
    assert not problems, "the server's table has both classes"
    assert all(name in first for name in ("'kind'", "'a' (north)", "'A' (west)"))
    assert all(name in second for name in ("'b c' (north)", "'B C' (south)"))
    server = TableDescription(server.columns, ("no", "yes", "never"))
    (problem,), odd = compare_tables(server, tables)
    assert "'YES' (north, south, west)" in problem
    assert any("'never'" in text for text in odd)


def test_a_private_node_says_nothing_of_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    table(1).to_csv(path, index=False)
    reading = Reading(missing="indicator", columns_left_out="site", table_columns=SUMMED)
    asked: Any = {**reading.values(), **TableDescription({}, ()).to_content()[CONFIG]}
    node: Any = {"partition-id": 0, "num-partitions": 1, "dataset": f"table:{path}"}
    for private in (False, True):
        context = Context(new_run({}).run_id, 1, {**node, "private": private}, RecordDict(), {})
        message = Message(RecordDict({CONFIG: ConfigRecord(asked)}), 1, TABLE_QUERY)
        if private:
            with pytest.raises(ConfigurationError, match="private=true"):
                describe_table(message, context)
        else:
            said = TableDescription.from_content(describe_table(message, context).content)
            assert "of 1" in said.columns["kind"]
