"""``flwr run . local``: Flower's own command ends with the same result as one process."""

import socket
from pathlib import Path

import pytest
import tomli_w
from flower_processes import ROOT, Flower, free_ports, run_config, wait_for
from installed import executable

from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.engine.flower.warm import flower_command
from bfl.experiments.results.run_folder import RunFolder


@pytest.mark.slow
@pytest.mark.long
def test_a_run_ends_with_the_posterior_of_one_process(flower: Flower, tmp_path: Path) -> None:
    app = FlowerApp.read(ROOT)
    run_serially(app, parse_pairs(run_config(tmp_path, "alone", 'strategy="ws"')), 2, {})
    config = tmp_path / "config.toml"
    given = parse_pairs(run_config(tmp_path, "run", 'strategy="ws"'))
    config.write_text(tomli_w.dumps(app.for_flwr_run(given)), encoding="utf-8")
    (port,) = free_ports(1)
    flower.environment["FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"] = str(port)
    here = ("--host", "127.0.0.1", "--port", str(port))
    flower.start(*flower_command("superlink"), "--insecure", "--simulation", *here)
    with socket.socket() as probe:
        wait_for(lambda: probe.connect_ex(("127.0.0.1", port)) == 0, 60)
    two = "num-supernodes=2 client-resources-num-cpus=1"
    run = ("run", str(ROOT), "local", "--stream", "--run-config", str(config))
    done = flower.run(executable("flwr"), *run, "--federation-config", two)
    assert done.returncode == 0, done.stdout + flower.logs()
    last, alone = (RunFolder(tmp_path / name).rounds()[-1] for name in ("run", "alone"))
    assert last["posterior-sha256"] == alone["posterior-sha256"]
