"""A deployment on loopback: one SuperLink, two SuperNodes, a process for every message."""

import os
from pathlib import Path

import numpy as np
import pytest
from flower_processes import (
    ROOT,
    Flower,
    check_complete,
    end_processes,
    executable,
    final_digest,
    free_ports,
    kill,
    run_config,
    take_back_last_round,
    wait_for,
)

from bfl.configuration.pairs import parse_pairs
from bfl.data.datasets import load_dataset
from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.state import Snapshots

pytestmark = [pytest.mark.slow, pytest.mark.long]

PLUGIN = """
from pydantic import Field
from bfl.aggregation.weightings.base import weightings
from bfl.aggregation.weightings.counts import TrainSize


@weightings.register("own")
class Own(TrainSize):
    own_power: float = Field(1.0, description="power")

    def gamma(self, posteriors, num_examples, previous):
        return super().gamma(posteriors, num_examples, previous) ** self.own_power
"""
OWN_EXAMPLES = (200, 100)


@pytest.fixture(scope="module")
def superlink(flower: Flower) -> tuple[Flower, int]:
    """Return Flower with a SuperLink, to which the connection ``loopback`` leads; and its port."""
    (port,) = free_ports(1)
    (flower.home / "config.toml").write_text(
        '[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\n'
        f'address = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    flower.start(
        *(executable("flower-superlink"), "--insecure"),
        *("--host", "127.0.0.1", "--port", str(port)),
    )
    flower.wait_for_superlink(port)
    return flower, port


def start_nodes(flower: Flower, superlink: int, more: tuple[str, str] = ("", "")) -> set[int]:
    """Start two SuperNodes; return their process ids."""
    return {start_node(flower, superlink, node, more[node]) for node in range(2)}


def start_node(flower: Flower, superlink: int, partition_id: int, more: str = "") -> int:
    """Start the SuperNode of a partition; return its process id."""
    (port,) = free_ports(1)
    return flower.start(
        *(executable("flower-supernode"), "--insecure"),
        *("--superlink", f"127.0.0.1:{superlink}"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"partition-id={partition_id} num-partitions=2 {more}"),
    )


def test_resumed_with_states_of_the_nodes(superlink: tuple[Flower, int], tmp_path: Path) -> None:
    """The posterior is that of one process, also when the run goes on after its first round, with
    other processes and the states of the first: clients' factors and their optimizers."""
    flower, port = superlink
    both = 'strategy="pvi" optimizer-state="keep"'
    here, config = (
        run_config(tmp_path, name, both).replace("rounds=1", "rounds=2") for name in ("here", "run")
    )
    run_serially(FlowerApp.read(ROOT), parse_pairs(here), 2, {})
    states = (f'state-dir="{tmp_path / "first"}"', f'state-dir="{tmp_path / "second"}"')
    digests = [final_digest(tmp_path / "here")]
    for resume in ("", "resume=true"):
        nodes = start_nodes(flower, port, states)
        done = flower.run(
            *(str(ROOT / "scripts" / "flwr-run.sh"), "loopback"),
            *("--run-config", f"{config} {resume}"),
        )
        end_processes(nodes)
        assert done.returncode == 0, done.stdout + flower.logs()
        check_complete(tmp_path / "run", {"rounds": 2, "clients": 2, "model": "mlp"})
        assert not (tmp_path / "run" / "clients").exists()
        digests.append(final_digest(tmp_path / "run"))
        if not resume:
            take_back_last_round(tmp_path / "run")
    assert digests == [digests[0]] * 3
    for name in ("first", "second"):
        [folder] = (tmp_path / name).glob("*/*")
        kept = Snapshots(folder, kept=3).at(2)
        assert kept is not None
        assert np.abs(kept["part.factors.factor-precision"]).max() > 0
        assert any(key.startswith("optimizer.") for key in kept)


def test_a_killed_node_is_gone_without_and_taken_up_again(
    superlink: tuple[Flower, int], tmp_path: Path
) -> None:
    """SIGKILL after the first round; Flower notices after about a minute, by which time a new
    SuperNode, with an id of its own, plays the partition."""
    flower, port = superlink
    nodes = [start_node(flower, port, partition_id) for partition_id in range(2)]
    config = run_config(tmp_path, "run").replace("rounds=1", "rounds=4")
    server = flower.start(str(ROOT / "scripts" / "flwr-run.sh"), "loopback", "--run-config", config)
    folder = RunFolder(tmp_path / "run")
    wait_for(lambda: len(folder.rounds()) >= 1, 180)
    kill(nodes[1])
    nodes[1] = start_node(flower, port, 1)
    _, status = os.waitpid(server, 0)
    end_processes(set(nodes))
    assert os.waitstatus_to_exitcode(status) == 0, flower.logs()
    rounds = [(entry["clients"], entry["failures"]) for entry in folder.rounds()]
    assert rounds[0] == rounds[-1] == (2, 0)
    assert (1, 1) in rounds
    [log] = flower.folder.glob("flwr-run.sh-*.log")
    assert "takes the place of node" in " ".join(log.read_text(encoding="utf-8").split())
    check_complete(tmp_path / "run", {"rounds": 4, "clients": 2})


def test_nodes_train_on_data_of_their_own_by_a_plugin_of_their_own_folder(
    tmp_path: Path, flower: Flower
) -> None:
    """The run's own file is there as well, and its keys are none of pyproject.toml's. That a node
    without the file refuses is in tests/clients/test_client_app.py."""
    digits, configs, start = load_dataset("digits"), [], 0
    server, node = tmp_path / "server", tmp_path / "node"
    for folder in (server, node):
        folder.mkdir()
        (folder / "mine.py").write_text(PLUGIN, encoding="utf-8")
    for site, count in enumerate(OWN_EXAMPLES):
        part = slice(start, start + count)
        archive = tmp_path / f"site{site}.npz"
        np.savez(
            archive,
            x_train=digits.train_images[part],
            y_train=digits.train_labels[part],
            x_test=digits.test_images,
            y_test=digits.test_labels,
        )
        configs += ["--node-config", f'dataset="npz:{archive}" plugins-dir="{node}"']
        start += count
    more = f'plugins="{server / "mine.py"}" weighting="own" own-power=0.5'
    before = {path.name for path in tmp_path.iterdir()}
    done = flower.run(
        *(str(ROOT / "scripts" / "deploy-local.sh"), "--nodes", "2", *configs),
        *("--run-config", run_config(tmp_path, "run", more)),
        timeout=400,
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout
    assert "warning: neither encryption nor authentication" in " ".join(done.stdout.split())
    check_complete(tmp_path / "run", {"rounds": 1, "clients": 2, "weighting": "own"})
    for entry in RunFolder(tmp_path / "run").rounds():
        assert (entry["clients"], entry["num-examples"]) == (2, sum(OWN_EXAMPLES))
    # TensorFlow leaves the code that it has generated in __pycache__; that is not ours to remove.
    left = {path.name for path in tmp_path.iterdir()} - before - {"__pycache__"}
    assert left <= {"run"}, "deploy-local.sh has left something"
