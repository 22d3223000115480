"""The studies that come with the project: sound, complete, and as the papers have them."""

import hashlib
import re
from functools import cache
from pathlib import Path

import pytest

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import Configuration, resolve
from bfl.configuration.sources import is_study, read_toml
from bfl.experiments.run.resume import configuration_hash
from bfl.experiments.studies.study import Run, read_study

ROOT = Path(__file__).resolve().parents[3]
TABLES = {path: read_toml(path) for path in sorted((ROOT / "configs").rglob("*.toml"))}
FILES = [path for path, tables in TABLES.items() if is_study(tables) and "title" in tables]
"""The studies; what has no title is none by itself."""
FRAGMENTS = [path for path, tables in TABLES.items() if is_study(tables) and path not in FILES]
"""What only others extend."""


@cache
def resolved(path: Path) -> tuple[tuple[Run, Configuration], ...]:
    """Return a study's runs with what they resolve to: once for all tests that look at them."""
    runs = read_study(path).runs
    return tuple((run, run.configuration) for run in runs)


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_run_of_every_study_is_sound(path: Path) -> None:
    """It resolves, differs from all others, and reads every key that it sets."""
    found = [(run, configuration.values) for run, configuration in resolved(path)]
    assert len({tuple(sorted(values.items())) for _, values in found}) == len(found)
    # A setting of a component that no run picks would be a mistake that nothing shows.
    read = {key for _, values in found for key in values}
    assert {key for run, _ in found for key in run.values} <= read
    for figure in (f for f in read_study(path).figures if f.kind == "client-numbers"):
        for run, configuration in resolved(path):
            has = has_number_of_a_client(configuration, figure.metric)
            assert has or not figure.shows(run.labels), (figure.name, run.name)


def extended(path: Path) -> set[Path]:
    given = TABLES[path].get("extends", [])
    names = [given] if isinstance(given, str) else given
    found = {(path.parent / name).resolve() for name in names}
    return found.union(*(extended(other) for other in found))


def test_what_is_no_study_by_itself_is_extended_by_one() -> None:
    assert len(FRAGMENTS) > 10
    assert set(FRAGMENTS) <= set().union(*map(extended, FILES))


def test_the_page_of_studies_has_all_of_them_and_the_numbers_of_their_runs() -> None:
    """A line has one or more files, and a number for each or one for all."""
    text = (ROOT / "docs" / "studies.md").read_text("utf-8")
    table = text.split("| study | runs | |\n")[1].split("\n\n")[0].splitlines()[1:]
    said: dict[Path, int] = {}
    for line in table:
        files, numbers = line.split("|")[1:3]
        first, *others = re.findall("`([^`]*)`", files)
        folder = (ROOT / "configs" / first).parent
        paths = [ROOT / "configs" / first]
        paths += [ROOT / "configs" / name if "/" in name else folder / name for name in others]
        counts = [int(number) for number in re.findall("[0-9]+", numbers)]
        assert len(counts) in (1, len(paths)), line
        assert not said.keys() & set(paths), line
        said |= dict(zip(paths, counts * (len(paths) // len(counts)), strict=True))
    assert said == {path: len(read_study(path).runs) for path in FILES}


def has_number_of_a_client(configuration: Configuration, metric: str) -> bool:
    """Return whether the clients of a run have a number, by its name in clients.json."""
    if metric == "global-accuracy":
        return True
    personal = configuration.values["personalization"] != "none"
    return configuration.keys.evaluated_by == "clients" and ("-meme-" in metric or personal)


def test_every_published_table_is_a_studys() -> None:
    """Whole, or it would be refused; but for seconds a round, which no study has as a number."""
    used = {study.published.text for study in map(read_study, FILES) if study.published}
    found = {path for path in (ROOT / "configs").rglob("*.csv") if path.read_text() not in used}
    assert found == {ROOT / "configs" / "ozer2022" / "published" / "table5.csv"}


# SHA-256 of the tables: each was compared with its paper, digit by digit, when it was written.
DIGESTS = {
    "fedbe2021": "dabab8ef4698",
    "fischer2024": "9166798e0176",
    "hbfl2023": "6c20004cf4d7",
    "ozer2022": "6d022bb9e8ab",
}


def test_published_numbers_are_the_papers() -> None:
    found, count = {}, 0
    for paper in DIGESTS:
        digest = hashlib.sha256()
        for file in sorted((ROOT / "configs" / paper / "published").glob("*.csv")):
            digest.update(file.name.encode() + file.read_bytes())
            count += 1
        found[paper] = digest.hexdigest()[:12]
    assert found == DIGESTS
    assert len(list((ROOT / "configs").rglob("*.csv"))) == count


def test_every_strategy_and_weighting_of_the_tables_is_in_the_study_of_them_all() -> None:
    """By their full names, each once; parts of one's own need not be in a study of the project.

    Nor need what a published code has in place of the paper's rules.
    """
    study = read_study(ROOT / "configs" / "digits-every-strategy.toml")
    studies = {path: read_study(path) for path in FILES}
    published = [p for p, s in studies.items() if s.published and "as-coded" not in s.name]
    for registry in (pooling_rules, weightings):
        key = "strategy" if registry is pooling_rules else registry.kind
        chosen = [str(choice.values[key]) for choice in study.axes[key]]
        assert [registry.get(name).name for name in chosen] == sorted(set(chosen))
        used = {
            configuration.values[registry.kind]
            for path in published
            for _, configuration in resolved(path)
        }
        assert used <= set(chosen)


def test_the_documented_example_is_a_study(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    *_, example = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "example.toml").write_text(example, encoding="utf-8")
    lines = [
        f"{row},{partition},{weighting},90.0,0.001\n"
        for row in ("Flipout,WS", "Deterministic,NWA", "Flipout,LP")
        for partition in ("iid", "dirichlet-0.5")
        for weighting in ("equal", "train-size")
    ]
    header = "model,aggregation,partition,weighting,accuracy_pct,accuracy_spread\n"
    (tmp_path / "published.csv").write_text(header + "".join(lines), encoding="utf-8")
    runs = read_study(tmp_path / "example.toml").runs
    assert len(runs) == 2 * 3 * 2 * 2
    assert "flipout-ws_dirichlet-0.5_equal_seed-0" in {run.name for run in runs}
    for run in runs:
        resolve(dict(run.values))


# SHA-256 of runs, claims and published numbers in the columns' units: each study was compared with
# its paper when it was written.
SETTINGS = {
    "fedbe2021": "ed04a5ad539c",
    "fedbe2021-as-coded": "8bb4d07cba7f",
    "fischer2024": "7edd424b1f6d",
    "hbfl2023": "13c55f8771e0",
    "ozer2022": "a10d6fbdb446",
    "ozer2022-as-coded": "ad64ab1406de",
}


@pytest.mark.parametrize("folder", SETTINGS)
def test_studies_of_papers_are_those_that_were_compared(folder: str) -> None:
    digest = hashlib.sha256()
    for path in (path for path in FILES if path.parent.name == folder):
        study = read_study(path)
        runs = [(run.name, configuration_hash(run.values)) for run in study.runs]
        published = study.published and study.published.lines
        digest.update(repr([path.stem, runs, tuple(study.claims), published]).encode())
    assert digest.hexdigest()[:12] == SETTINGS[folder]
