import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bfl.commands.check import LOOK_AT, check_run
from bfl.commands.main import COMMANDS, main
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.errors import DataError
from bfl.evaluation.metrics import metrics
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.report import GLOSSARY
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.simulation import DEFAULT_CLOSING

PLUGIN = """
from pydantic import Field
from bfl.aggregation.weightings import Equal, weightings


@weightings.register("own-weights")
class OwnWeights(Equal):
    own_power: float = Field(0.5, description="power")
"""
ROOT = Path(__file__).resolve().parent.parent.parent


def test_what_init_makes_can_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", str(tmp_path / "new")]) == 0
    for name in ("config.toml", "own_rule.py", "study.toml", "README.md"):
        assert (tmp_path / "new" / name).exists()
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert (tmp_path / "new" / "study.toml").read_text(encoding="utf-8") in page
    monkeypatch.chdir(tmp_path / "new")
    assert main(["show", "--run-config", "config.toml"]) == 0
    assert "own-rule" in capsys.readouterr().out
    assert main(["study", "study.toml", "--dry-run", "--plugins", "own_rule.py"]) == 0
    assert main(["init", str(tmp_path / "new")]) == 2
    assert "config.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["reprot"], "'report'"),
        (["list", "strategies"], "'strategy'"),
        (["keys", "learnin-rate"], "'learning-rate'"),
        (["show", "--run-config", 'strategy="scafold"'], "'scaffold'"),
        (["show", "runs/a", "--run-config", "rounds=1"], "--run-config runs/a/config.toml"),
    ],
)
def test_words_that_are_none_are_refused(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert named in capsys.readouterr().err


def test_help_needs_no_numerics_and_each_command_has_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = (
        "import sys\n"
        "from bfl.commands.entry import bfl\n"
        "sys.argv[1:] = ['--help']\n"
        "try: bfl()\n"
        "except SystemExit: sys.exit({'numpy', 'pydantic', 'ray'} & {*sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "set()\n"
    assert all(f"    {name}" in done.stdout for name in COMMANDS)
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([*name.split(), "--help"])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: bfl {name}")


def test_the_glossary_has_every_metric_and_every_word_of_a_report() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert set(GLOSSARY.read_text(encoding="utf-8").splitlines()) <= set(page.splitlines())
    for component in (*metrics.classes(), *uncertainties.classes()):
        if component.__module__.startswith("bfl."):
            assert f"`{component.name}`" in page


@pytest.mark.of_bfls_own
@pytest.mark.parametrize("name", ["keys", "list"])
def test_the_reference_pages_are_as_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / {"keys": "keys.md", "list": "parts.md"}[name]
    assert main([name, "--markdown"]) == 0
    assert page.read_text("utf-8") == capsys.readouterr().out, f"bfl {name} --markdown prints it"


def test_keys_are_found_by_a_word_of_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "INITIAL learning"]) == 0
    printed = capsys.readouterr().out
    assert " learning-rate " in printed
    assert "dataset" not in printed


def test_plugins_are_listed_where_they_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN, encoding="utf-8")
    for command in (["list", "weighting"], ["keys"]):
        assert main([*command, "--plugins", str(path)]) == 0
        assert "own-power" in capsys.readouterr().out
    assert main(["keys", "--plugins", str(tmp_path / "other.py")]) == 2
    assert "other.py" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "plot", "predict --data x", "run --resume"])
def test_a_misspelt_run_gets_the_nearest_one(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    RunFolder.create(tmp_path / "runs", "flowers", {"rounds": 1}, {})
    (tmp_path / "runs" / "flower").mkdir()
    monkeypatch.chdir(tmp_path)
    for given in ("runs/flowres", "runs/flower"):
        assert main([*command.split(), given]) == 2
        assert "did you mean runs/flowers?" in capsys.readouterr().err


def test_what_a_configuration_resolves_to_is_shown_as_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("rounds = 3\nlearning-rate = 0.001\n", encoding="utf-8")
    pairs = """strategy="scaffold" seed=0 batch-size="" """
    assert main(["show", "--run-config", str(file), "--run-config", pairs]) == 0
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    closing = {"closing": DEFAULT_CLOSING}  # which bfl run has where nobody names one
    given = {"strategy": "scaffold", "rounds": 3, "learning-rate": 0.001, **closing}
    assert resolve(read_run_config([str(file)])) == resolve(given)


def test_all_that_a_run_would_refuse_of_its_data_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{'' if n == 3 else min(n, 20)},{'inf' if n == 5 else 1.0},{n // 20},{n % 2}\n"
        for n in range(40)
    ]
    path = tmp_path / "rows.csv"
    path.write_text("age,dose,site,outcome\n" + "".join(rows), encoding="utf-8")
    check = ["check", f"table:{path}", "--run-config"]
    assert main([*check, 'target="outcome" partition="column:sites"']) == 2
    refused = capsys.readouterr().err
    assert all(f"'{name}'" in refused for name in ("age", "dose", "sites", "mlp"))
    sound = 'target="outcome" columns-left-out="dose" missing="mean" model="mlp"'
    assert main([*check, f'{sound} partition="column:site"']) == 0
    found = capsys.readouterr().out
    assert "32 training and 8 test examples" in found
    assert "of 20 rows (site 0): age 1\n" in found
    assert "one value in all rows that have one (site 1): age 20 in 20\n" in found
    assert "site 1: 20 examples: 0 10 (50%), 1 10 (50%)" in found
    assert 'columns-left-out="dose,site"' in found  # as the run itself warns
    # The last of 30 sites has one class and hardly any age.
    ages = np.arange(300)
    last = ages % 30 == 29
    frame = pd.DataFrame({"age": np.where(last & (ages > 29), np.nan, ages), "site": ages % 30})
    frame.assign(outcome=ages // 30 % 2 * ~last).to_csv(path, index=False)
    of_sites = 'partition="column:site" test-sites="site:29" columns-left-out="site"'
    assert main([*check, f'target="outcome" model="mlp" missing="mean" {of_sites}']) == 0
    *_, verdict = found = capsys.readouterr().out.splitlines()
    things = [line.removeprefix(LOOK_AT) for line in found if line.startswith(LOOK_AT)]
    assert f" {len(things)} things" in verdict
    assert sum("site 29: " in line for line in things) == 3
    assert [line for line in things if line.startswith("10 more values of site")]
    assert main([*check, 'target="outcome" model="mpl" partition="column:sitee"']) == 2
    refused = capsys.readouterr().err
    assert all(word in refused for word in ("'sitee'", "mpl"))
    assert main([*check, 'target="outcom" columns-left-out="sitte" model="mlpp"']) == 2
    refused = capsys.readouterr().err
    assert all(f"'{word}'" in refused for word in ("outcom", "sitte", "mlpp"))
    numbers = 'target="outcome" task="regression" partition="column:site" closing="conformal"'
    assert main([*check, numbers]) == 2
    found = capsys.readouterr().out  # the refusal of closing names the task, which stays
    assert "inputs: age, site\n" in found
    assert not any(text in found for text in ("classes", "to test are"))
    assert main(["check", "table:none.csv"]) == 2
    assert not capsys.readouterr().out  # no other data set is read in its place
    values = {"dataset": f"table:{path}", "target": "outcome", "model": "mpl", "missing": "mean"}
    with pytest.raises(DataError, match="mpl") as error:
        check_run({**values, "partition": "column:none"}, nodes=2)
    assert "column" not in str(error.value)  # of nodes with their own data, none is divided


def test_classes_that_sites_name_otherwise_or_lack_are_to_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("n/car", "n/van", "n/Van", "N/car", "N/van")):
        (tmp_path / name).mkdir(parents=True)
        for shade in range(20):
            pixels = np.full((8, 8), 40 * number + shade // 2, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{shade}.png")
    check = ["check", f"folder:{tmp_path}", "--run-config", 'partition="column:site" clients=2']
    assert main(check[:2]) == 0
    assert "look at: images have a site: partition=" in capsys.readouterr().out
    assert main(check) == 0
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith(LOOK_AT)]
    assert [line for line in found if line.endswith("site N: no example of “Van”")]
    assert {"Van, van", "N, n"} <= {line.rpartition(": ")[2] for line in found}
    assert [line for line in found if "also among the test images" in line]
    (tmp_path / "N" / "Van").mkdir()
    (tmp_path / "n" / "car" / "0.png").write_bytes(b"none")
    assert main(check) == 2
    refused = capsys.readouterr().err
    assert all(str(tmp_path / name) in refused for name in ("N/Van", "n/car"))
