"""Results of a study: two data frames, read from its folder; see ``docs/studies.md``.

It has ``study.toml``, ``published.csv``, ``runs.csv``, ``curves.csv``, ``runs/NAME/`` with a run's
output in ``log.txt``, and what the commands write. In ``runs.csv``, ``configuration`` is the hash
of what the study has set, ``diverged`` names metrics that were not a number, and ``made-as`` (of
older versions) the run whose result this is.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bfl.engine.flower.app import own_folder
from bfl.errors import ConfigurationError, nearest
from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.metrics import metrics as registered_metrics
from bfl.experiments.results import environment, run_folder
from bfl.experiments.results.summary import numbers_of_foreign
from bfl.experiments.results.table import VALIDATION
from bfl.experiments.run.resume import configuration_hash
from bfl.experiments.studies.columns import GAIN, numbers_of_curves, numbers_of_rounds, retained_at
from bfl.experiments.studies.study import Run, Study, read_study
from bfl.texts import from_toml

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "runs"  # the default parent of studies' folders

RESULTS = Path("docs") / "results"
"""The folder in which a checkout keeps the results of its studies."""

STUDY_TOML, PUBLISHED, RUNS, CURVES = "study.toml", "published.csv", "runs.csv", "curves.csv"
GIVEN = "given-by-study.toml"  # the file of a run's folder with the keys that the study has set

COMMIT, CHANGED, NOT_FOUND = "git-commit", "git-changed", "git-not-found"
"""Columns of a run's origin: its commit, uncommitted changes, a commit that no history contains."""

LOST = ("failures", "refused")  # counts in a round's record of sampled clients that were not pooled

VERSIONS = ("bfl", *environment.PACKAGES, "processor", "vector-instructions", COMMIT)
ORIGIN = (*VERSIONS, CHANGED, NOT_FOUND, environment.STARTED, environment.ENDED)
TEXTS = (
    *("run", "configuration", "diverged", "partition-sha256", "train-sha256", "test-sha256"),
    *("posterior-sha256", "made-as", *ORIGIN),
)
"""The columns of ``runs.csv`` that are texts, besides the labels."""

IMAGES = "test-images"

PERCENTS = range(5, 101, 5)
"""The shares of the examples at which curves keep the accuracy of the least uncertain."""

OF_CURVES = ["run", "round", "metric", "value"]  # the columns of ``curves.csv``

LOG, FAILED = "log.txt", "failed"
"""The output of a run; the last line says how the last process has failed, if it has."""


def rounded(value: float) -> float:
    """Return a number with seven significant digits, as curves have."""
    return float(f"{value:.7g}")


def read_run(folder: run_folder.RunFolder) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return a finished or begun run's row, without labels, and its curves."""
    import pandas as pd

    rounds = folder.rounds()
    last = rounds[-1] if rounds else {"round": 0}
    environment = folder.read_json(run_folder.ENVIRONMENT, {})
    data = folder.read_json(run_folder.DATA, {})
    points: list[tuple[int, str, float]] = []
    with folder.decoding(run_folder.ROUNDS):
        for entry in rounds:
            # A posterior with infinite logits has no metrics, but its ensemble may have some.
            names = [name.removeprefix(ENSEMBLE).removeprefix(VALIDATION) for name in entry]
            if any(name in registered_metrics.names() for name in names):
                kept = [name for name in numbers_of_rounds() if name in entry]
                points += [(int(entry["round"]), name, float(entry[name])) for name in kept]
        lost = {name: sum(int(entry.get(name) or 0) for entry in rounds) for name in LOST}
    with folder.decoding(run_folder.METRICS):
        finished = folder.read_json(run_folder.METRICS, {})
        numbers = {name: float(value) for name, value in finished.items()}
    with folder.decoding(run_folder.FOREIGN):
        numbers |= numbers_of_foreign(folder.read_json(run_folder.FOREIGN, {"sources": {}}))
    with folder.decoding(run_folder.RETENTION):
        retention = folder.read_json(run_folder.RETENTION, {})
        for metric, by_uncertainty in retention.get("gains", {}).items():
            numbers |= {f"{GAIN}{metric}-{by}": float(gain) for by, gain in by_uncertainty.items()}
        shares = [round(100 * share) for share in retention.get("fraction", ())]
        for by, curve in retention.get("curves", {}).get("accuracy", {}).items():
            for percent, value in zip(shares, curve["value"], strict=True):
                if percent in PERCENTS:
                    points.append((last["round"], retained_at("accuracy", by, percent), value))
    for client, own in folder.read_json(run_folder.CLIENTS, {}).items():
        points += [(last["round"], f"client-{client}-{n}", value) for n, value in own.items()]
    images = math.nan
    if folder.holds(run_folder.PREDICTIONS):
        with folder.reading_arrays(run_folder.PREDICTIONS) as arrays:
            images = len(arrays["labels" if "labels" in arrays else "targets"])
    partition = folder.read_json(run_folder.PARTITION, {})
    row = {
        "diverged": " ".join(name for name, value in numbers.items() if math.isnan(value)),
        IMAGES: images,
        **lost,
        "seconds": round(math.fsum(float(entry.get("seconds", 0.0)) for entry in rounds), 3),
        "partition-sha256": run_folder.partition_digest(partition)[:16] if partition else "",
        "train-sha256": str(data.get("train", ""))[:16],
        "test-sha256": str(data.get("test", ""))[:16],
        "posterior-sha256": str(last.get("posterior-sha256", "")),
        "made-as": "",
        **{name: str(environment.get(name, "")) for name in ORIGIN},
    }
    curves = pd.DataFrame(points, columns=OF_CURVES[1:]).astype({"value": float})
    return {**numbers, **row}, curves.assign(value=curves["value"].map(rounded))


@dataclass(frozen=True)
class StudyFolder(run_folder.Files):
    """The folder of a study; see ``Files`` for the errors of reading and writing."""

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    def run(self, name: str) -> run_folder.RunFolder:
        """Return the folder of a run."""
        return run_folder.RunFolder(self.runs / name)

    def study(self) -> Study:
        """Return the study that the folder describes; for the errors see ``read_study``."""
        if not self.holds(STUDY_TOML):
            raise ConfigurationError(f"{self.path} is not the folder of a study: no {STUDY_TOML}")
        return read_study(self.path / STUDY_TOML)

    def read_frame(self, labels: Sequence[str] = ()) -> pd.DataFrame:
        """Return ``runs.csv``, the labels as texts; empty if there is none."""
        import pandas as pd

        if not self.holds(RUNS):
            return pd.DataFrame(columns=["run", "configuration"])
        with self.reading(RUNS) as data:
            header = data.partition(b"\n")[0].decode().strip().split(",")
            frame = pd.read_csv(
                io.BytesIO(data),
                dtype=dict.fromkeys((*TEXTS, *labels), str),
                keep_default_na=False,
                na_values={name: [] if name in labels else [""] for name in header},
                float_precision="round_trip",
            )
            columns = dict.fromkeys((*frame.columns, *TEXTS, IMAGES))
            frame = frame.astype({"run": str, "configuration": str}).reindex(columns=columns)
        return frame.fillna(dict.fromkeys(TEXTS, ""))

    def read_curves(self) -> pd.DataFrame:
        """Return ``curves.csv``; empty if there is none."""
        import pandas as pd

        if not self.holds(CURVES):
            return pd.DataFrame(columns=OF_CURVES).astype({"value": float})
        with self.reading(CURVES) as data:
            return pd.read_csv(io.BytesIO(data), dtype={"run": str, "metric": str})[OF_CURVES]

    def state(self, name: str) -> str:
        """Return the state in words of a run without a result."""
        own = self.run(name)
        if own.holds(LOG):
            with own.reading(LOG) as log:
                if log.rstrip().rpartition(b"\n")[2].startswith(FAILED.encode()):
                    return FAILED
        if not own.holds(run_folder.CONFIG):
            return "missing"
        rounds = own.rounds()
        return f"begun, round {rounds[-1]['round'] if rounds else 0} of {own.config()['rounds']}"


@dataclass(frozen=True)
class StudyResults:
    """Results of a study's selected runs.

    ``frame`` has a row a finished run, by name; ``curves`` run, round, metric and value; ``states``
    the states of the other runs in words.
    """

    frame: pd.DataFrame
    curves: pd.DataFrame
    states: Mapping[str, str] = field(default_factory=dict)

    def numbers(self, name: str) -> pd.Series[float]:
        """Return a number of all runs that have it, by run; NaN where the run has diverged."""
        if len(self.frame):
            values = self.frame.reindex(columns=[name])[name]
            diverged = self.frame["diverged"].map(lambda names: name in names.split())
            if len(found := values[values.notna() | diverged]):
                return found
        return numbers_of_curves(name, self.curves)

    def curve(self, metric: str) -> pd.DataFrame:
        """Return a metric by round and, in columns, run."""
        found = self.curves[self.curves.metric == metric]
        return found.pivot(index="round", columns="run", values="value")


@dataclass(frozen=True)
class OpenedStudy:
    """A study in its folder, what ``--only`` selects of it, and the folder of committed results."""

    folder: StudyFolder
    study: Study
    patterns: tuple[str, ...] = ()
    committed: Path | None = None

    @cached_property
    def runs(self) -> list[Run]:
        """The selected runs."""
        patterns = self.patterns or ("",)
        return [r for r in self.study.runs if any(_matches(r.name, p) for p in patterns)]

    @cached_property
    def results(self) -> StudyResults:
        """The results of the selected runs, read once; for the errors see ``gather``."""
        return gather(self)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def open_study(
    path: Path, *, output: Path = Path(OUTPUT), only: Sequence[str] = (), anew: bool = False
) -> OpenedStudy:
    """Return a study from its folder or its TOML file; its plugins are not loaded.

    Args:
        path: The study's folder, its TOML file, or a study of bfl, such as ``fischer2024/table2``.
        output: The parent of the study's folder, for a file.
        only: Selects the runs whose name contains or matches one of these; empty: all runs.
        anew: Whether the results that the file's checkout has are left out.
    """
    if path.suffix == ".toml" or not path.is_dir():
        own = own_folder()  # names are found from any working directory
        inside = [at / name for at in (own, own / "configs") for name in (path, f"{path}.toml")]
        there = [] if path.exists() or path.is_absolute() else inside
        study = read_study(next((file for file in there if file.is_file()), path))
        folder = StudyFolder(output.absolute() / study.name)
    else:
        folder = StudyFolder(path)
        study = folder.study()
    names = [run.name for run in study.runs]
    for pattern in only:
        if not any(_matches(name, pattern) for name in names):
            raise ConfigurationError(
                f"--only: no run's name contains or matches {pattern!r}; a name is for instance "
                f"'{nearest(pattern, names) or names[0]}'"
            )
    # In the nearest folder above the file that has docs/results.
    parents = (each for each in study.source.resolve().parents if (each / RESULTS).is_dir())
    root = None if anew else next(parents, None)
    return OpenedStudy(folder, study, tuple(only), root and root / RESULTS / study.name)


def gather(study: OpenedStudy) -> StudyResults:
    """Return the results of a study's selected runs: of their folders, then of files.

    Raises:
        ConfigurationError: A result was made under another configuration than the study has now,
            or results differ in the data that they are of; the message names the files.
        DataError: A file is corrupt.
    """
    import pandas as pd

    wanted = {run.name: run for run in study.runs}
    hashes = {name: configuration_hash(run.values) for name, run in wanted.items()}
    rows: dict[str, dict[str, Any]] = {}
    curves: list[pd.DataFrame] = []
    unfit: dict[Path, list[str]] = {}
    for name in wanted:
        own = study.folder.run(name)
        if not own.holds(run_folder.METRICS):
            continue
        with own.reading(GIVEN) as data:
            made_of = configuration_hash(from_toml(data))
        if made_of != hashes[name]:
            unfit.setdefault(study.folder.runs, []).append(name)
        row, of_run = read_run(own)
        rows[name] = {"configuration": made_of, **row}
        curves.append(of_run.assign(run=name)[OF_CURVES])
    for place in (study.folder, *([StudyFolder(study.committed)] if study.committed else [])):
        kept = place.read_frame(tuple(study.study.runs[0].labels)).set_index("run")
        kept = kept[kept.index.isin(hashes.keys() - rows.keys())]
        changed = kept.index[kept.configuration != kept.index.map(hashes)]
        if len(changed):
            unfit[place.path / RUNS] = list(changed)
        rows |= kept.to_dict("index")
        of_runs = place.read_curves()
        curves.append(of_runs[of_runs.run.isin(kept.index)])
    if unfit:
        raise ConfigurationError(
            "\n".join(
                f"{place}: {found[0]}{f' and {len(found) - 1} more runs' if found[1:] else ''}, "
                "made under another configuration than the study has now; remove these results, "
                "or give the study another name"
                for place, found in unfit.items()
            )
        )
    done = [name for name in wanted if name in rows]
    labelled = ({**wanted[n].labels, **rows[n], **wanted[n].labels} for n in done)
    frame = pd.DataFrame(labelled, index=done)
    given = ([wanted[name].values.get(key) for key in ("dataset", "test-sites")] for name in done)
    datasets = [" without ".join(str(word) for word in words if word) for words in given]
    for kind in ("train-sha256", "test-sha256") if done else ():
        for dataset, digests in frame[kind].groupby(datasets, sort=False):
            if len(known := digests[digests != ""].drop_duplicates()) > 1:
                raise ConfigurationError(
                    f"the {kind} of {dataset} are not the same in all results: {known.to_dict()}"
                )
    whole = pd.concat([each for each in curves if len(each)] or curves[:1], ignore_index=True)
    states = {name: study.folder.state(name) for name in wanted if name not in rows}
    return StudyResults(frame, whole, states)


def write_results(folder: StudyFolder, results: StudyResults) -> None:
    """Write ``runs.csv`` and ``curves.csv``, if there is a result."""
    if not len(results.frame):
        return
    frame = results.frame.rename_axis("run").dropna(axis="columns", how="all")
    folder.write(RUNS, frame.to_csv(lineterminator="\n").encode())
    folder.write(CURVES, results.curves.to_csv(index=False, lineterminator="\n").encode())
