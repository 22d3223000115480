"""All that can be refused before the first run: configurations, data, folders; all runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.configuration import Configuration, resolve
from bfl.configuration.configuration import Value
from bfl.data.datasets import dataset_on_this_machine, dataset_sources
from bfl.data.datasets.cache import cached_dataset
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import changed_keys, check_output
from bfl.experiments.studies.curves import at_round
from bfl.experiments.studies.folder import StudyFolder, is_begun, is_done
from bfl.experiments.studies.gathering import values_of
from bfl.experiments.studies.scale import IMAGE_SIDE, ScaledStudy
from bfl.experiments.studies.study import Run


@dataclass(frozen=True)
class PlannedRun:
    """A run with its whole configuration.

    Attributes:
        run: The run.
        configuration: Its configuration, checked.
        overrides: The keys that the engine is given.
    """

    run: Run
    configuration: Configuration
    overrides: Mapping[str, Value]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.configuration.keys.clients

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.configuration.keys.rounds


@dataclass(frozen=True)
class Plan:
    """All runs of a study, checked.

    Attributes:
        runs: The runs.
        missing: What is said of data sets that are not on this machine, by what the key
            ``dataset`` says.
    """

    runs: tuple[PlannedRun, ...]
    missing: Mapping[str, str]


Check = Callable[[Configuration, int], None]
"""What looks at a configuration and its data before an engine is started."""


def plan(
    runs: Sequence[Run],
    folder: StudyFolder,
    machine: Mapping[str, Value],
    check: Check,
    *,
    wanted: Callable[[Run], bool] = lambda _: True,
    data_may_be_missing: bool = False,
) -> Plan:
    """Return the plan of a study's runs.

    Args:
        runs: The runs.
        folder: The study's folder.
        machine: Keys of this machine for all runs, such as ``data-dir``.
        check: Checks a configuration with its data, and the run's folder.
        wanted: Which runs are to be made: the data of the others need not be there.
        data_may_be_missing: Whether no data set needs to be there: what can be checked without is
            checked, and no data set is fetched.

    Raises:
        ConfigurationError: Some runs are refused. The message has one line for each reason, with
            the runs it holds for.
    """
    reasons = _Reasons(len(runs))
    planned = [_planned(run, folder, machine, reasons) for run in runs]
    reasons.raise_if_any()
    sound = [run for run in planned if run is not None]
    missing = _missing_data(run for run in sound if wanted(run.run))
    # One data set after the other: a process keeps two.
    by_data: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in sound:
        by_data.setdefault(_data(run), []).append(run)
    for data, group in by_data.items():
        with_data = [run for run in group if wanted(run.run)]
        if data_may_be_missing and data in missing:
            with_data = []
        with reasons.of(with_data):
            if with_data:
                keys = with_absolute_data(with_data[0]).keys
                cached_dataset(keys.dataset, keys.data_dir)
            for run in group:
                with reasons.of([run]):
                    if run in with_data:
                        check(with_absolute_data(run), run.clients)
                    elif configuration := _with_data_if_there(run):
                        check_output(configuration)
    reasons.raise_if_any()
    return Plan(tuple(sound), {dataset: text for (dataset, _), text in missing.items()})


def check_steps(
    scaled: ScaledStudy,
    runs: Sequence[PlannedRun],
    sizes: Callable[[Configuration, int], Sequence[int]],
) -> None:
    """Check that a reduction of the images leaves every client the steps that the study asks for.

    Args:
        scaled: The study.
        runs: Runs whose data are on this machine.
        sizes: Tells the clients' numbers of examples.

    Raises:
        ConfigurationError: A client would make fewer steps in a round.
    """
    least = scaled.study.least_steps
    if not least or "train-examples" not in scaled.scale.amounts:
        return
    for run in runs:
        keys = run.configuration.keys
        smallest = min(sizes(with_absolute_data(run), run.clients))
        epochs = run.configuration.workload.expected_epochs(keys.local_epochs)
        steps = -(-smallest // keys.batch_size) * epochs
        if steps < least:
            raise ConfigurationError(
                f"--scale: train-examples leaves a client of {run.name} {smallest} images, "
                f"{steps:g} steps a round; allowed: at least {least} ({scaled.study.source})"
            )


def check_rounds_of_columns(scaled: ScaledStudy, runs: Iterable[PlannedRun]) -> None:
    """Check that the rounds whose numbers columns show are evaluated.

    Args:
        scaled: The study; where its rounds are reduced, such a column may stay empty.
        runs: Its runs.

    Raises:
        ConfigurationError: A run does not evaluate such a round.
    """
    if "rounds" in scaled.scale.amounts:
        return
    asked = {c.metric: found[1] for c in scaled.study.columns if (found := at_round(c.metric))}
    for run in runs:
        keys = run.configuration.keys
        for metric, number in asked.items():
            if number > keys.rounds or not keys.evaluate_every or number % keys.evaluate_every:
                raise ConfigurationError(
                    f"columns: metric is '{metric}', and {run.name} does not evaluate round "
                    f"{number}; allowed: a multiple of evaluate-every ({keys.evaluate_every}) up "
                    f"to rounds ({keys.rounds}) ({scaled.study.source})"
                )


def check_image_side(scaled: ScaledStudy, runs: Iterable[PlannedRun]) -> None:
    """Check that a reduction of the images' side makes none of them larger.

    Args:
        scaled: The study.
        runs: Runs whose data are on this machine.

    Raises:
        ConfigurationError: Some images are smaller than that.
    """
    side = scaled.scale.amounts.get(IMAGE_SIDE)
    if side is None:
        return
    for dataset, data_dir in dict.fromkeys(map(_data, runs)):
        unscaled = dataset.split(":", 2)[2]  # of "resized:SIDE:DATASET"
        height, width, _ = cached_dataset(unscaled, data_dir).image_shape
        if min(height, width) < float(side):
            raise ConfigurationError(
                f"--scale: image-side is {side:g}, and the images of {unscaled} have {height} x "
                f"{width} pixels; allowed: at most {min(height, width)}"
            )


class _Reasons:
    """Why runs are refused: each reason once, with the runs it holds for.

    Args:
        runs: The number of all runs.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._names: dict[str, list[str]] = {}

    @contextmanager
    def of(self, runs: Iterable[PlannedRun | Run]) -> Iterator[None]:
        """Take note of what is refused inside, instead of raising it, for some runs."""
        try:
            yield
        except (ConfigurationError, DataError) as error:
            for line in str(error).splitlines():
                self._names.setdefault(line, []).extend(run.name for run in runs)

    def raise_if_any(self) -> None:
        """Raise all reasons together.

        Raises:
            ConfigurationError: There are some.
        """
        if self._names:
            raise ConfigurationError(
                "\n".join(f"{reason} ({self._of(names)})" for reason, names in self._names.items())
            )

    def _of(self, names: Sequence[str]) -> str:
        """Return in words which runs a reason holds for."""
        if len(names) == self._runs > 1:
            return "all runs"
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        return f"run {names[0]}{others}"


def _planned(
    run: Run, folder: StudyFolder, machine: Mapping[str, Value], reasons: _Reasons
) -> PlannedRun | None:
    where = {"output-dir": str(folder.runs), "name": run.name, "resume": True}
    overrides: dict[str, Any] = {**values_of(run), **machine, **where}
    with reasons.of([run]):
        configuration = resolve(overrides, check_data=False)
        dataset_sources.get(configuration.keys.dataset.partition(":")[0])
        return PlannedRun(run, configuration, overrides)
    return None


def _data(run: PlannedRun) -> tuple[str, str]:
    keys = run.configuration.keys
    return keys.dataset, keys.data_dir


def _missing_data(runs: Iterable[PlannedRun]) -> dict[tuple[str, str], str]:
    """Return what is said of data sets that are not on this machine."""
    missing = {}
    for data in dict.fromkeys(map(_data, runs)):
        dataset, data_dir = data
        try:
            here = dataset_on_this_machine(dataset, data_dir)
            resolve({"dataset": dataset, "data-dir": data_dir})
        except ConfigurationError as error:
            missing[data] = str(error)
            continue
        if not here:
            looked = f"not in {Path(data_dir).expanduser()}" if data_dir else "no data-dir is given"
            missing[data] = f"dataset '{dataset}': {looked}; it comes from the Hugging Face hub"
    return missing


def with_absolute_data(run: PlannedRun) -> Configuration:
    """Return a run's configuration as its folder keeps it: with the data's absolute path.

    Raises:
        ConfigurationError: The data are missing.
    """
    return resolve(run.overrides)


def _with_data_if_there(run: PlannedRun) -> Configuration | None:
    """Return the same, or None where the data are missing."""
    try:
        return with_absolute_data(run)
    except ConfigurationError:
        return None


def reusable(runs: Iterable[PlannedRun], others: Iterable[StudyFolder]) -> dict[str, str]:
    """Return the finished runs of other studies that are the same as runs of this one.

    Args:
        runs: The runs.
        others: The folders of the other studies.

    Returns:
        The absolute path of the other run's folder by this study's name of the run.
    """
    finished = [
        (folder, folder.config())
        for other in others
        if other.runs.is_dir()
        for folder in map(RunFolder, sorted(other.runs.iterdir()))
        if is_begun(folder) and is_done(folder)
    ]
    found = {}
    for run in runs if finished else ():
        configuration = _with_data_if_there(run)
        if configuration is None:
            continue
        values = configuration.values
        same = (folder for folder, saved in finished if not changed_keys(saved, values))
        folder = next(same, None)
        if folder is not None:
            found[run.name] = str(folder.path.resolve())
    return found
