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
    "fedbe2021": "c3 3a4c19c6e1f9 c4 cdab22ffe2ad c5 8ba98a599d5a figure5 0ad694946b63 scaffold "
    "b158311bbd35 table1 5dd02f731985 table2 2a1757d7259a table3 d12a6f4bb101 table4 e8bdabe5ec28 "
    "table5 b8a8b11b752b table6 c96faca85ae6 table7 7dfa87ab57a3 table8-distilled 5581dd2eed50 "
    "table8 b6a4b1b3a332 table9 8531af1ef140",
    "fischer2024": "table1 638cff5e0335 table2 e22eca6279e1 table3 216e1e6dc34b table4 "
    "c049ed4c82dc table5 acffff5f7767",
    "hbfl2023": "table4 e18de8a92717 tables1-3 8e1b80821191",
    "ozer2022": "table1 c163454f9f5b table3 cc2a119d427e table4 a53864473d0f table5 f38e32fcbde1",
}


def test_published_numbers_are_the_papers() -> None:
    found = {}
    for paper in DIGESTS:
        files = sorted((ROOT / "configs" / paper / "published").glob("*.csv"))
        pairs = [(file.stem, hashlib.sha256(file.read_bytes()).hexdigest()[:12]) for file in files]
        found[paper] = " ".join(word for pair in pairs for word in pair)
    assert found == DIGESTS
    assert len(list((ROOT / "configs").rglob("*.csv"))) == sum(
        len(d.split()) // 2 for d in DIGESTS.values()
    )


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
    "fedbe2021": "c3 4d9e86d0 c4 cba513bf c5 5135b5fd combinations-cifar10 056c99f6 "
    "dirichlet-cifar10 01e452a7 figure1 528351de figure10 7505d819 figure2 f5153358 figure4 "
    "091e61bd figure5 139ad755 figure6 730523f9 figure7 5842693c figure8 92e0caaf figure9 "
    "9000b96b rates-cifar10 8d6cd0d0 scaffold 5a6fe62c shorter-distillation-cifar10 4db48a81 "
    "step-cifar10 7cb41792 swiss-roll 5b2d9b83 table1-one-ensemble 5b3d4498 table1 96073588 "
    "table2 b7f0349e table3 638ecd32 table4 14bc1e3d table5 c3807707 table6 71609c15 table7 "
    "10a6433e table8-distilled f0c59889 table8 fbbe0a76 table9 11074981 targets-cifar10 c185b276",
    "fedbe2021-as-coded": "c3 e0bb4a68 c4 a1ea1026 step-cifar10 d0236d52 table1 1b30528f table2 "
    "3829899d table3 20c09626 table4 ad2ef176 table6 e524327f table7 86402199 table8-distilled "
    "256e78e8 table8 5898dcd9 table9 78e4baa4",
    "fischer2024": "dropout-fashion-mnist 336aa66e full-size 45f4591b table1 8f20bb82 "
    "table2-fashion-mnist 0cbae48a table2 e894898b table3-digits 83663470 table3-fashion-mnist "
    "80d5163c table3 7387fb18 table4-digits 37823e37 table4-fashion-mnist 91695abe table4 "
    "9befc2e3 table5-digits 8ac2ddb4 table5 d2959787 weightings-digits 8df03ec1",
    "hbfl2023": "cifar10-1000-images-mixed 6124df52 cifar10-1000-images a0ef6995 digits 16db769e "
    "figure3 e65b4ef5 figures4-6 f57c56a3 figures8-9 5a93621b mnist-1000-images 69121c73 "
    "slow-clients-1000-images 78b16c8b table4 ce23efa3 tables1-3 098c6388 tasks-1000-images "
    "53b8f423 tasks d8d48887",
    "ozer2022": "table1-fashion-mnist 09970eed table1 ff856017 table3-fashion-mnist f6fd9939 "
    "table3 cffeeeaa table4 a8636e20",
    "ozer2022-as-coded": "clamp-of-sums 3b2ad367 spread 9410e86d table1-fashion-mnist c2d54682 "
    "table1 6d345b65 table3-fashion-mnist 837775c1 table3 221a422b table4 959f6916",
}


@pytest.mark.parametrize("folder", SETTINGS)
def test_studies_of_papers_are_those_that_were_compared(folder: str) -> None:
    found = []
    for path in (path for path in FILES if path.parent.name == folder):
        study = read_study(path)
        runs = [(run.name, configuration_hash(run.values)) for run in study.runs]
        published = study.published and study.published.lines
        digest = hashlib.sha256(repr([runs, tuple(study.claims), published]).encode())
        found += [path.stem, digest.hexdigest()[:8]]
    assert found == SETTINGS[folder].split()
