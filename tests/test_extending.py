"""The documented parts of one's own, put into a copy of the project as a user would."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    ".ci",
    "bfl",
    "strategies",
    "clients",
    "tests",
    "configs",
    "docs",
    "scripts",
    "benchmarks",
)
PAGES = ("README.md", "LICENSE", "CONTRIBUTING.md", "CITATION.cff")
EXAMPLE = re.compile(r"```python\n# (bfl/\S+\.py)\n(.*?)```", re.DOTALL)
REGISTRATION = re.compile(r"@\w+\.register\(\"([\w-]+)\"")
SETTING = re.compile(r"^    (\w+): \w+ = Field\(", re.MULTILINE)

USE = """
import numpy as np
import strategies
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.posteriors import Posterior

clients = [Posterior(np.array([m]), np.array([v])) for m, v in ((0.0, 1.0), (3.0, 3.0))]
pooled = pool(pooling_rules.create("hmv"), clients, [2.0, 1.0]).posterior
np.testing.assert_allclose([pooled.mean[0], pooled.variance[0]], [1.0, 3 / (2 + 1 / 3)])
print(strategies.HarmonicMeanOfVariances.__name__)
"""


def examples() -> dict[str, str]:
    """Return the documented parts: their files and what stands in them."""
    return {
        path: code
        for page in ("README.md", "docs/extending.md")
        for path, code in EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8"))
    }


def call(folder: Path, *arguments: str, timeout: float = 580) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, whose modules come before those of the checkout."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a copy of the project that has all documented parts."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in PAGES:
        shutil.copy(ROOT / name, folder)
    for path, code in examples().items():
        (folder / path).write_text(code, encoding="utf-8")
    # Where somebody has pasted an example into this very checkout, its keys are declared already.
    keys = [key.replace("_", "-") for code in examples().values() for key in SETTING.findall(code)]
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.partition(" =")[0] not in keys]
    (folder / "pyproject.toml").write_text("".join(kept), encoding="utf-8")
    yield folder
    shutil.rmtree(folder)


def kinds() -> dict[str, str]:
    """Return the keys of all kinds of parts that a user may write, by their folders."""
    from bfl.configuration.component_slots import REGISTRIES
    from bfl.data.datasets import dataset_sources

    found = {r.package.replace(".", "/"): r.kind for r in (*REGISTRIES, dataset_sources)}
    return {folder: kind for folder, kind in found.items() if kind != "exchange"}


@pytest.mark.parametrize("folder", kinds())
def test_the_documents_have_a_part_of_every_kind(folder: str) -> None:
    """And the page's table says where such parts lie."""
    assert folder in {str(Path(path).parent) for path in examples()}
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    [row] = [row for row in page.splitlines() if row.startswith("| `") and f"`{folder}/`" in row]
    assert f"`{kinds()[folder]}`" in row


def test_the_rule_of_the_readme_pools_and_has_a_strategy(copy: Path) -> None:
    done = call(copy, "-c", USE)
    assert done.stdout.strip() == "HarmonicMeanOfVariances", done.stderr


def test_examples_are_formatted_and_without_lint(copy: Path) -> None:
    for check in (["check"], ["format", "--check"]):
        done = call(copy, "-m", "ruff", *check, *examples())
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_setting_that_pyproject_lacks_is_taken_and_its_line_is_told(copy: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from bfl.engine.flower import FlowerApp\n"
        "app = FlowerApp.read(Path())\n"
        "assert app.run_config({'size-power': 0.75})['size-power'] == 0.75\n"
        "print(app.for_flwr_run({'size-power': 0.75, 'alpha': 1.0}))"
    )
    done = call(copy, "-c", code)
    assert done.stdout.strip() == "{'alpha': 1.0, 'plugin-settings': 'size-power=0.75'}", (
        done.stderr
    )
    file = "tests/configuration/test_configuration.py"
    told = call(copy, "-m", "pytest", "-q", file, "-k", "flower_knows_all_keys")
    for line in ("size-power", "hidden-units"):
        assert f'{line} = ""' in told.stdout, told.stdout


@pytest.mark.slow
@pytest.mark.long
def test_every_example_passes_the_tests_of_its_kind(copy: Path) -> None:
    """By the documented option: ``--part weighting:power-of-size``."""
    names = {path: REGISTRATION.findall(code)[0] for path, code in examples().items()}
    parts = [f"--part={kinds()[str(Path(path).parent)]}:{name}" for path, name in names.items()]
    done = call(copy, "-m", "pytest", "-v", "-p", "no:cacheprovider", *parts)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    for name in names.values():
        lines = done.stdout.splitlines()
        assert any(name in line and "PASSED" in line for line in lines), name


def test_an_unknown_part_is_refused_with_the_nearest() -> None:
    done = call(ROOT, "-m", "pytest", "-q", "--part", "weighting:equall", "tests/test_files.py")
    assert done.returncode == 4
    assert "did you mean 'equal'?" in done.stderr
