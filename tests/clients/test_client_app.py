"""What a node says of itself, and what it refuses whatever the server says."""

import json
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from bfl import plugins
from bfl.configuration import resolve
from bfl.data.datasets.encoding import Column
from bfl.engine.flower import new_run
from bfl.errors import BflError, DataError
from bfl.federation.node_description import NodeDescription
from bfl.federation.wire import TrainTask
from clients import client_app
from clients.client_app import cached_client, describe, train
from clients.examples import PreparedClient
from clients.node import tell_operator

NODE = {"partition-id": 1, "num-partitions": 3}
NOTHING_TO_DO = "has no examples"
HOSTILE = {"attack": "sign-flip", "attackers": 2}


def ask(work: Any, content: RecordDict, **config: Any) -> Message:
    context = Context(new_run({}).run_id, 1, {**NODE, **config}, RecordDict(), {})
    return work(Message(content, 1, "train"), context)  # type: ignore[no-any-return]


def task(partition_id: int, **values: Any) -> RecordDict:
    """Return a task without examples: what is not refused fails for want of these."""
    config = TrainTask(1, partition_id, json.dumps(values), 10, None).to_config()
    return RecordDict({"config": config})


def with_examples(**values: Any) -> RecordDict:
    """Return a task with an example: what is not refused looks for the data."""
    task = TrainTask(1, 1, json.dumps(values), 10, np.array([0]))
    return RecordDict({"config": task.to_config()})


def reason(content: RecordDict, **config: Any) -> str:
    return str(ask(train, content, **config).error.reason)


@pytest.mark.parametrize(
    ("config", "keeps"),
    [({}, False), ({"state-dir": "/var/lib/x"}, True), ({"simulation": True}, True)],
)
def test_a_node_says_what_it_would_do(config: Any, keeps: bool) -> None:
    said = NodeDescription.from_content(ask(describe, RecordDict(), **config).content)
    assert (said.partition_id, said.num_partitions) == (1, 3)
    assert said.keeps_state == keeps


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"allow-run-paths": "true"}, "allow-run-paths is 'true'; allowed: true or false"),
        ({"greatest-weight": 0}, "greatest-weight is 0; allowed: "),
        ({"greatest-weight": True}, "greatest-weight is True"),
        ({"greatest-weight": float("nan")}, "greatest-weight is nan"),
        ({"partition-id": "1"}, "partition-id is '1'; allowed: "),
        ({"partition-id": 1.0}, "partition-id is 1.0"),
        ({"partition-id": True}, "partition-id is True"),
        ({"partition-id": -3}, "partition-id is -3; allowed: "),
        ({"partition-id": 3}, "partition-id is 3; allowed: 0 to 2, as num-partitions is 3"),
        ({"num-partitions": "three"}, "num-partitions is 'three'; allowed: "),
        ({"num-partitions": True, "partition-id": 0}, "num-partitions is True"),
        ({"num-partitions": 0, "partition-id": 0}, "num-partitions is 0; allowed: "),
    ],
)
def test_a_wrong_node_configuration_is_refused(config: Any, said: str) -> None:
    reply = ask(describe, RecordDict(), simulation=True, **config)
    assert "ConfigurationError: " in reply.error.reason
    assert said in reply.error.reason


def test_a_node_that_masks_its_updates_sends_none_as_they_are() -> None:
    said = reason(task(1), exchange="masked")
    assert "the run's exchange is 'direct', and this node's configuration has" in said
    assert NOTHING_TO_DO in reason(task(1, exchange="masked"), exchange="masked")
    assert NOTHING_TO_DO in reason(task(1, exchange="masked"))
    # What its own configuration says is the node's: the server is told that much, and no more.
    assert "did you mean 'masked'" in reason(task(1), exchange="maskde", simulation=True)
    assert "ConfigurationError" in reason(task(1), exchange="maskde")


def test_a_supernode_plays_no_hostile_client() -> None:
    said = reason(task(1, **HOSTILE))
    assert "attack is 'sign-flip' for partition 1, and only simulated nodes" in said
    assert NOTHING_TO_DO in reason(task(1, **HOSTILE), simulation=True)
    assert NOTHING_TO_DO in reason(task(1, **{**HOSTILE, "attackers": 1}))
    assert NOTHING_TO_DO in reason(task(1, attackers=2))


def test_another_clients_task_is_refused() -> None:
    assert "partition 1 and is asked for partition 2" in reason(task(2))
    # The virtual client that pre-trains is behind the last one.
    assert NOTHING_TO_DO in reason(task(3))


PATHS = ("npz:{}", "NPZ:{}", "npz :{}", " Npz: {}", "hf:{}", "HF:{}", "hf: {}")
PATHS += ("hf:~/images", "hf:images/here", "hf:x/../../images", "hf:imagefolder", "hf:owner/name")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("around", ["{}", "Tasks:digits:1,{}"])
def test_a_server_names_no_path_on_a_supernode(
    path: str, around: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    looked: list[tuple[str, ...]] = []

    def look(*where: str) -> Any:
        looked.append(where)
        raise DataError("found")

    for module in ("clients.description", "clients.examples", "clients.evaluation"):
        monkeypatch.setattr(f"{module}.cached_dataset", look)
    dataset = around.format(path.format(tmp_path / "passwords.npz"))
    content = with_examples(dataset=dataset)
    said = reason(content)
    assert "this node reads no path that a server names" in said
    assert "allow-run-paths=true" in said
    asked = RecordDict({"config": ConfigRecord({"dataset": dataset})})
    described = NodeDescription.from_content(ask(describe, asked).content)
    assert "this node reads no path that a server names" in described.data
    assert not looked
    for config in ({"allow-run-paths": True}, {"simulation": True}):
        assert "reads no path" not in reason(content, **config)
    assert [word for word, *_ in looked] == [dataset, dataset]


def test_a_supernode_says_before_the_first_round_that_it_reads_no_path(tmp_path: Path) -> None:
    where = {"dataset": f"npz:{tmp_path}/gone.npz", "data-dir": ""}

    def said(asked: dict[str, str], **config: Any) -> tuple[str, bool]:
        content = RecordDict({"config": ConfigRecord(dict(asked))})
        found = NodeDescription.from_content(ask(describe, content, **config).content)
        return found.data, found.reads_run_paths

    assert not said({"dataset": "npz:gone.npz"})[1]
    assert said({"dataset": "npz:gone.npz"}, **{"allow-run-paths": True}) == ("", True)
    missing, reads = said(where, **{"allow-run-paths": True})
    assert "are not there" in missing
    assert reads
    assert said(where, simulation=True) == ("", False)


@pytest.mark.parametrize(("keys", "said"), [({}, 32), ({"test-share": 0.5}, 20)])
def test_a_node_counts_its_own_rows_as_the_run_reads_them(
    keys: dict[str, Any], said: int, tmp_path: Path
) -> None:
    path = tmp_path / "site.csv"
    rows = [f"{i},{i % 2}" for i in range(40)]
    path.write_text("\n".join(["x,target", *rows]), encoding="utf-8")
    described = {"columns": [vars(Column("x"))], "class-names": ["0", "1"]}
    known = {"dataset": "digits", "table-columns": json.dumps(described)}
    content = RecordDict({"config": ConfigRecord({**known, **keys})})
    reply = ask(describe, content, dataset=f"table:{path}")
    found = NodeDescription.from_content(reply.content)
    assert (found.data, found.own_examples) == ("", said)


RULE = """
import sys
from bfl.aggregation.pooling.base import pooling_rules
from bfl.aggregation.pooling.linear_pool import LinearPoolRule

sys.imported_by_a_node = True


@pooling_rules.register("from-elsewhere")
class FromElsewhere(LinearPoolRule):
    pass
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with a rule, as the server has it, which nothing has imported yet."""
    path = tmp_path / "server" / "from_elsewhere.py"
    path.parent.mkdir()
    path.write_text(f"# {tmp_path}\n{RULE}", encoding="utf-8")
    monkeypatch.setattr(sys, "imported_by_a_node", False, raising=False)
    monkeypatch.syspath_prepend(str(path.parent))
    return path


def problem(named: str, **config: Any) -> str:
    """Return what a node has to say of plugins, before the first round and in one."""
    asked = RecordDict({"config": ConfigRecord({"plugins": named})})
    said = NodeDescription.from_content(ask(describe, asked, **config).content).plugins
    trained = reason(task(1, plugins=named), **config)
    assert said in trained if said else NOTHING_TO_DO in trained
    return said


@pytest.mark.parametrize("named", ["the file", "the module"])
def test_a_supernode_imports_nothing_because_a_server_names_it(named: str, plugin: Path) -> None:
    said = problem({"the file": str(plugin), "the module": plugin.stem}[named])
    assert "plugins-dir" in said
    assert plugin.stem in said
    assert not sys.imported_by_a_node  # type: ignore[attr-defined]
    # Nor does it say anything of the data or the model that the plugin would have.
    question: dict[str, Any] = {"plugins": str(plugin), "num-classes": 10}
    content = RecordDict({"config": ConfigRecord(question)})
    reply = ask(describe, content, dataset="of-the-plugin")
    description = NodeDescription.from_content(reply.content)
    assert "plugins-dir" in description.unfit


def test_a_supernode_takes_the_plugins_of_its_own_folder(plugin: Path, tmp_path: Path) -> None:
    own = tmp_path / "node"
    own.mkdir()
    allowed = {"plugins-dir": str(own)}
    said = problem(str(plugin), **allowed)
    assert plugin.name in said
    assert "plugins-dir" in said
    assert str(own) not in said
    (own / plugin.name).write_bytes(plugin.read_bytes())
    assert problem(str(plugin), **allowed) == ""
    # And a simulated node, which the person who names them has started, from anywhere.
    assert problem(str(plugin), simulation=True) == ""


def test_a_supernode_takes_the_modules_that_its_installation_declares(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = plugins.Plugin(plugin.stem, plugin.stem)
    monkeypatch.setattr(plugins, "installed_plugins", lambda: (installed,))
    assert problem(plugin.stem) == ""
    assert "entry points bfl.plugins" in problem("json.tool")


def test_a_client_is_prepared_again_if_it_is_asked_for_something_else() -> None:
    # The client before is forgotten: a server that asks for more each round fills no memory.
    run = new_run({})
    context = Context(run.run_id, 1, {**NODE, "simulation": True}, RecordDict(), {})

    def client(*examples: int, **values: Any) -> PreparedClient:
        given = json.dumps({"dataset": "digits", **values})
        task = TrainTask(1, 1, given, 10, np.array(examples))
        return cached_client(context, task)

    first = client(3, 5)
    assert client(3, 5) is first
    assert client(3, 5, seed=1).configuration.keys.seed == 1
    forgotten = weakref.ref(first)
    del first
    assert client(7).examples.tolist() == [7]
    assert forgotten() is None
    with pytest.raises(BflError, match="not in its data"):
        client(10_000)


def test_data_of_a_nodes_own_are_of_one_site_and_train(tmp_path: Path) -> None:
    labels, images = np.arange(9), np.zeros((9, 8, 8), np.uint8)
    np.savez(tmp_path / "own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    own = {"dataset": f"npz:{tmp_path / 'own.npz'}"}
    context = Context(new_run({}).run_id, 1, {**NODE, **own}, RecordDict(), {})
    task = TrainTask(1, 1, json.dumps({"dataset": "digits", "test-sites": "site:oslo"}), 10, None)
    assert cached_client(context, task).examples.size == 9


def test_whoever_runs_a_node_sees_each_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = SimpleNamespace(simulated=False, in_actor=False)
    configuration = resolve({"rounds": 2, "name": "mine"})
    client = SimpleNamespace(node=node, configuration=configuration, examples=np.arange(7))
    monkeypatch.setenv("BFL_CLIENT", "client north")
    monkeypatch.setattr(client_app, "cached_client", lambda *_: client)
    monkeypatch.setattr(client_app, "train_round", lambda *_: "reply")
    assert ask(train, task(1)) == "reply"
    tell_operator("classes a\x1b[2J\nclient north: b")
    line, escaped, second = capsys.readouterr().err.splitlines()
    assert line.startswith("client north: run mine, round 1/2: 7 examples, ")
    assert escaped == "client north: classes a\\x1b[2J"
    assert not second.startswith("client")
