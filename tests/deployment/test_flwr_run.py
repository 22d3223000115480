"""``flwr run . local``: Flower's own command ends with the same result as one process."""

from pathlib import Path

import pytest
import tomli_w
from flower_processes import (
    ROOT,
    Flower,
    check_complete,
    executable,
    final_digest,
    free_ports,
    run_config,
)

from bfl.configuration.pairs import parse_pairs
from bfl.engine.flower import FlowerApp, run_serially
from bfl.engine.flower.superlink import superlink_command
from bfl.experiments.results.run_folder import RunFolder


@pytest.mark.slow
@pytest.mark.long
def test_a_run_ends_with_the_posterior_of_one_process(flower: Flower, tmp_path: Path) -> None:
    """With a preset each of whose values a user sets back to the default: the bits are those of
    none, and the values come before pyproject.toml's.
    """
    back = 'strategy="fedprox" pooling="weighted-sum-of-normals" objective="elbo"'
    app = FlowerApp.read(ROOT)
    run_serially(app, parse_pairs(run_config(tmp_path, "one-process", 'strategy="ws"')), 2, {})
    config = tmp_path / "config.toml"
    given = parse_pairs(run_config(tmp_path, "run", back).replace('"none"', '"png"'))
    config.write_text(tomli_w.dumps(app.for_flwr_run(given)), encoding="utf-8")
    (port,) = free_ports(1)
    flower.environment["FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"] = str(port)
    here = ("--host", "127.0.0.1", "--port", str(port))
    flower.start(*superlink_command(), "--insecure", "--simulation", *here)
    flower.wait_for_superlink(port)
    two = "num-supernodes=2 client-resources-num-cpus=1"
    run = ("run", str(ROOT), "local", "--stream", "--run-config", str(config))
    done = flower.run(executable("flwr"), *run, "--federation-config", two)
    assert done.returncode == 0, done.stdout + flower.logs()
    check_complete(tmp_path / "run", {"rounds": 1, "clients": 2, "model": "mlp"})
    assert RunFolder(tmp_path / "run").config()["strategy"] == "federated-proximal"
    assert final_digest(tmp_path / "run") == final_digest(tmp_path / "one-process")
    assert final_digest(tmp_path / "run") in done.stdout
