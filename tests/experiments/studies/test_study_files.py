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
from bfl.experiments.studies import read_study
from bfl.experiments.studies.study import Run, configuration_hash

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
        asked = [name for name in (figure.metric, figure.otherwise) if name]
        for run, configuration in resolved(path):
            has = any(has_number_of_a_client(configuration, number) for number in asked)
            assert has or not figure.shows(run.labels), (figure.name, run.name)


def extended(path: Path) -> set[Path]:
    """Return the files that a study's file extends, directly or indirectly."""
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
    _, example = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
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


# SHA-256 of runs and claims: each study was compared with its paper when it was written.
SETTINGS = {
    "fedbe2021": "c3 44cd00e9 c4 cddcf571 c5 4827c277 combinations-cifar10 e8e2262d "
    "dirichlet-cifar10 6120fcfa figure1 8ef48dd4 figure10 85000d60 figure2 4b31a8e7 figure4 "
    "7bc17ed0 figure5 cc0b847c figure6 a9a07bef figure7 d8f57fdc figure8 b211aea8 figure9 "
    "5559776e rates-cifar10 fb63c376 scaffold 9455f8ce shorter-distillation-cifar10 e31e1086 "
    "step-cifar10 d00bd2c3 swiss-roll 6737b183 table1-one-ensemble c758947d table1 4f91325b "
    "table2 48b67924 table3 90b61525 table4 1f4894b2 table5 5a40d787 table6 ade03a5d table7 "
    "c73894c8 table8-distilled 3ff51a01 table8 eb4d49c2 table9 738e1a64 targets-cifar10 bb8afff4",
    "fedbe2021-as-coded": "c3 78478943 c4 8e98df25 step-cifar10 cfadf674 table1 a320efc0 table2 "
    "37d48c8a table3 10b68be1 table4 786494a2 table6 6a825b37 table7 cef147cd table8-distilled "
    "b5fdb2b9 table8 566dd2a6 table9 7f375171",
    "fischer2024": "dropout-fashion-mnist cd39eb32 full-size 5e54ebcf table1 040df581 "
    "table2-fashion-mnist a4d77660 table2 8900255a table3-digits a75e7876 table3-fashion-mnist "
    "093404ed table3 25aee723 table4-digits 39d5ae7b table4-fashion-mnist 1e32ef72 table4 "
    "5738d6c3 table5-digits 15e06e95 table5 59fb3bd8 weightings-digits 0d770ecd",
    "hbfl2023": "cifar10-1000-images-mixed 9720f15d cifar10-1000-images 91963dd4 digits 8130f9e8 "
    "figure3 06e04eb8 figures4-6 bc7cad74 figures8-9 1ac004fc mnist-1000-images 065ee1b1 "
    "slow-clients-1000-images 597f7906 table4 2cd2126c tables1-3 2da4b0ac tasks-1000-images "
    "eb30d220 tasks 20b1fba0",
    "ozer2022": "table1-fashion-mnist 6c42a481 table1 9a2ff0c9 table3-fashion-mnist 509519ee "
    "table3 ebd9dc22 table4 46a3ca69",
    "ozer2022-as-coded": "clamp-of-sums 63109895 spread e5e2b11f table1-fashion-mnist 32a58c8a "
    "table1 a86c5ffe table3-fashion-mnist 3586ad58 table3 f1e966b4 table4 650bad29",
}


@pytest.mark.parametrize("folder", SETTINGS)
def test_settings_and_claims_of_the_papers_are_those_that_were_compared(folder: str) -> None:
    found = []
    for path in (path for path in FILES if path.parent.name == folder):
        study = read_study(path)
        runs = [(run.name, configuration_hash(run.values)) for run in study.runs]
        digest = hashlib.sha256(repr([runs, study.claims]).encode())
        found += [path.stem, digest.hexdigest()[:8]]
    assert found == SETTINGS[folder].split()
