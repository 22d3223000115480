"""``flwr run . local``: the same result as in one process, and an exit status to rely on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from flower_processes import (
    PRESET_SET_BACK,
    ROOT,
    Flower,
    check_complete,
    executable,
    final_digest,
    free_ports,
    run_config,
    take_back_last_round,
)

from bfl.configuration.pairs import parse_pairs
from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.long]

FEDERATION = "num-supernodes=2 client-resources-num-cpus=1"


@pytest.fixture(scope="module")
def superlink(flower: Flower) -> Iterator[Flower]:
    """Return Flower with a simulation SuperLink, to which the connection ``local`` leads."""
    (port,) = free_ports(1)
    flower.environment["FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"] = str(port)
    flower.start(
        executable("flower-superlink"),
        *("--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)),
    )
    flower.wait_for_superlink(port)
    return flower


def test_run_and_resumed_run_end_with_the_posterior_of_one_process(
    superlink: Flower, tmp_path: Path
) -> None:
    """With a preset, before which a user's values come that equal pyproject.toml's, and with states
    of clients; the second run makes the second round only.
    """

    def settings(name: str, more: str) -> str:
        return run_config(tmp_path, name, more).replace("rounds=1", "rounds=2")

    kept = 'optimizer-state="keep"'
    run_serially(FlowerApp.read(ROOT), parse_pairs(settings("one-process", kept)), 2, {})
    config = settings("run", f"{PRESET_SET_BACK} {kept}").replace('"none"', '"png"')
    for resume in ("", "resume=true"):
        done = superlink.run(
            *(str(ROOT / "scripts" / "flwr-run.sh"), "local", "--federation-config", FEDERATION),
            *("--run-config", f"{config} {resume}"),
        )
        assert done.returncode == 0, done.stdout + superlink.logs()
        assert ("round 1/2" in done.stdout) == (not resume)
        assert "round 2/2" in done.stdout
        check_complete(tmp_path / "run", {"rounds": 2, "clients": 2, "model": "mlp"})
        assert RunFolder(tmp_path / "run").config()["strategy"] == "federated-proximal"
        assert final_digest(tmp_path / "run") == final_digest(tmp_path / "one-process")
        assert final_digest(tmp_path / "run") in done.stdout
        if not resume:
            take_back_last_round(tmp_path / "run")


def test_failed_run_has_its_exit_status(superlink: Flower, tmp_path: Path) -> None:
    done = superlink.run(
        *(str(ROOT / "scripts" / "flwr-run.sh"), "local", "--federation-config", FEDERATION),
        *("--run-config", f'clients=3 output-dir="{tmp_path}" name="failing"'),
    )
    assert done.returncode == 1, done.stdout
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("failed: run ")
    assert "clients is 3, but there are 2 SuperNodes" in last
    assert not (tmp_path / "failing").exists()


def test_unknown_key_is_named(superlink: Flower) -> None:
    done = superlink.run(
        *(str(ROOT / "scripts" / "flwr-run.sh"), "local", "--run-config", "round=1")
    )
    assert done.returncode == 2
    assert "unknown key 'round'; did you mean 'rounds'?" in done.stdout
