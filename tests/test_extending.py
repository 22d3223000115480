"""The documented parts of one's own, put into a copy of the project as a user would."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = (".ci", "bfl", "strategies", "clients", "tests")
COPIED += ("configs", "docs", "scripts", "benchmarks")
PAGES = ("README.md", "LICENSE", "CONTRIBUTING.md", "CITATION.cff")
EXAMPLE = re.compile(r"```python\n# (bfl/\S+\.py)\n(.*?)```", re.DOTALL)
REGISTRATION = re.compile(r"@\w+\.register\(\"([\w-]+)\"")
SETTING = re.compile(r"^    (\w+): \w+ = Field\(", re.MULTILINE)


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


def test_the_documents_have_a_part_of_every_kind() -> None:
    """And the page's table says where such parts lie."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `")]
    assert kinds().keys() <= {str(Path(path).parent) for path in examples()}
    for folder, key in kinds().items():
        [row] = [row for row in rows if f"`{folder}/`" in row]
        assert f"`{key}`" in row


def test_examples_are_formatted_and_without_lint(copy: Path) -> None:
    for check in (["check"], ["format", "--check"]):
        done = call(copy, "-m", "ruff", *check, *examples())
        assert done.returncode == 0, done.stdout + done.stderr


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
