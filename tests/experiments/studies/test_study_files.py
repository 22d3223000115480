"""The studies that come with the project: sound, complete, and as the papers have them."""

import re
from functools import cache
from pathlib import Path

import pytest

from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import Configuration, resolve
from bfl.configuration.sources import is_study, read_toml
from bfl.experiments.studies import read_study
from bfl.experiments.studies.study import Run

ROOT = Path(__file__).resolve().parents[3]
TABLES = {path: read_toml(path) for path in sorted((ROOT / "configs").rglob("*.toml"))}
FILES = [path for path, tables in TABLES.items() if is_study(tables) and "title" in tables]
"""The studies; what has no title is none by itself."""
FRAGMENTS = [path for path, tables in TABLES.items() if is_study(tables) and path not in FILES]
"""What only others extend."""
FISCHER = ROOT / "configs" / "fischer2024"


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


@pytest.mark.parametrize("study", ["ozer2022", "ozer2022-as-coded"])
def test_table_4_of_ozer_has_the_runs_of_tables_1_and_3(study: str) -> None:
    folder = ROOT / "configs" / study
    names = ("table1", "table3", "table4")
    values_of = {
        name: [configuration.values for _, configuration in resolved(folder / f"{name}.toml")]
        for name in names
    }
    for values in values_of["table4"]:
        assert values in (values_of["table1"] if values["clients"] == 10 else values_of["table3"])


@pytest.mark.parametrize("folder", ["ozer2022", "ozer2022-as-coded"])
@pytest.mark.parametrize("table", ["table1", "table3"])
def test_ozers_reduced_tables_differ_from_the_whole_ones_in_their_images_alone(
    folder: str, table: str
) -> None:
    whole, small = (
        ROOT / "configs" / folder / f"{table}{end}.toml" for end in ("", "-fashion-mnist")
    )
    # Of the rows with weights by size: the others are in the whole one alone.
    assert [o for o in read_study(whole).claims if o.worse.get("model") != "FED"] == list(
        read_study(small).claims
    )
    of_all = {run.name: run.values for run in read_study(whole).runs}
    runs = read_study(small).runs
    assert len(runs) == 60
    reduced = {"dataset": "fashion-mnist", "train-examples": 12000}
    for run in runs:
        made = {**run.values}
        curve = {"evaluate-every": made["evaluate-every"]}
        assert made == {**of_all[run.name], **reduced, **curve}


def test_learning_curves_of_posteriors_are_judged_with_ten_samples() -> None:
    studies = [
        *(path for path in FILES if path.parent == FISCHER),
        *(ROOT / "configs").glob("ozer2022*/table?.toml"),
        ROOT / "configs/precision.toml",
    ]
    assert len(studies) == 21
    for path in studies:
        for _, configuration in resolved(path):
            keys = configuration.keys
            assert keys.evaluate_mc_samples >= 10, path
            assert keys.pretrain_mc_samples >= 10, path


# Runs, examples of each client, steps of a client in a round.
REDUCED = {
    "table2-fashion-mnist": (60, 500, 16),
    "table3-fashion-mnist": (36, 500, 80),
    "table4-fashion-mnist": (36, 500, 6400),
    "table5-digits": (60, 143, 36),
    "table3-digits": (36, 143, 90),
    "table4-digits": (36, 143, 1800),
}


@pytest.mark.parametrize("name", REDUCED)
def test_fischers_reduced_tables_have_six_seeds_and_all_test_images(name: str) -> None:
    number, examples, steps = REDUCED[name]
    runs = resolved(FISCHER / f"{name}.toml")
    assert len(runs) == number
    seeds = [int(run.labels["seed"]) for run, _ in runs]
    assert seeds == sorted(seeds), "a second seed before all have their first"
    assert set(seeds) == set(range(6))
    for _, configuration in runs:
        keys = configuration.keys
        assert keys.test_examples == 0, "all"
        assert keys.train_examples == keys.clients * examples
        assert keys.local_epochs * -(-examples // keys.batch_size) == steps
        assert configuration.words["model"] == "resnet8"


def test_what_the_paper_does_not_say_stands_in_fischers_files() -> None:
    """In the one that all others extend."""
    chosen = {"initial-means": "he-normal", "biases": "gaussian", "scale-floor": 1e-5}
    assert {key: TABLES[FISCHER / "paper.toml"]["base"][key] for key in chosen} == chosen
    for path in (path for path in FILES if path.parent == FISCHER):
        base = read_study(path).base
        assert {key: base[key] for key in chosen} == chosen, path


def test_rows_of_hbfl_that_are_judged_globally_train_no_personal_model_for_nothing() -> None:
    """Its meme does not learn from them; that of mutual learning does."""
    folder = ROOT / "configs" / "hbfl2023"
    reduced = (f"{name}-1000-images" for name in ("cifar10", "mnist", "slow-clients"))
    for name in ("digits", "figure3", "figures8-9", *reduced):
        for run, configuration in resolved(folder / f"{name}.toml"):
            trains = configuration.personalization.active
            assert trains == (run.labels["method"] == "FML"), run.name


@pytest.mark.parametrize(("name", "partitions"), [("table4", 4), ("table4-fashion-mnist", 2)])
def test_the_pretrained_rows_have_one_pretraining(name: str, partitions: int) -> None:
    """What the pooling does comes after it; all that pre-training reads is the same."""
    after = {"strategy", "pooling", "weighting", "prior"}
    by_seed_and_partition: dict[str, list[dict[str, object]]] = {}
    runs = resolved(FISCHER / f"{name}.toml")
    for run, configuration in runs:
        if run.labels["pretrain"] != "yes":
            continue
        prior = configuration.replace(prior=configuration.words["pretrain-prior"]).values
        later = after | configuration.pooling.model_dump(by_alias=True).keys()
        read = {key: value for key, value in prior.items() if key not in later}
        group = f"{run.labels['seed']} {run.labels['partition']}"
        by_seed_and_partition.setdefault(group, []).append(read)
    seeds = {run.labels["seed"] for run, _ in runs}
    assert len(by_seed_and_partition) == len(seeds) * partitions
    for dwc, ws in by_seed_and_partition.values():
        assert dwc == ws
        assert dwc["pretrain-examples"] == 0.1
        assert dwc["prior-scale"] == 10.0
