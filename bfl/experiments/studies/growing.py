"""A study that has grown: of several descriptions of one study the one that has all the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bfl.configuration import Configuration, resolve
from bfl.errors import ConfigurationError
from bfl.experiments.studies.folder import STUDY_JSON, StudyFolder
from bfl.experiments.studies.gathering import values_of
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.run_result import portable
from bfl.experiments.studies.study import Run


@dataclass(frozen=True)
class DescribedStudy:
    """A study as a folder describes it; its published table need not be there.

    Attributes:
        place: The folder.
    """

    place: Path

    @property
    def file(self) -> Path:
        """The file that says at which scale it is."""
        return self.place / STUDY_JSON

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Its runs by name."""
        runs = study_in(StudyFolder(self.place), with_published=False).runs
        return {run.name: run for run in runs}

    def lacks(self, other: DescribedStudy) -> str:
        """Return what it lacks of another one to contain it, in words; empty: nothing.

        It contains one whose runs it has as well, with as many rounds or more and otherwise the
        same configuration. Where the learning rate goes by shares of the rounds, only as many are
        the same.
        """
        missing = [name for name in other.runs if name not in self.runs]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return f"has no run {missing[0]}{more}"
        for name, theirs in other.runs.items():
            if said := _lacks_of_a_run(self.runs[name], theirs):
                return f"has {name} with {said}"
        return ""


def configuration_of(run: Run) -> Configuration:
    """Return the configuration of a study's run; its data need not be there."""
    return resolve(values_of(run), check_data=False)


def _lacks_of_a_run(mine: Run, theirs: Run) -> str:
    """Return why a run is not another one gone on with, by its keys; empty: it is."""
    if mine.values == theirs.values:
        return ""
    configuration, other = configuration_of(mine), configuration_of(theirs)
    ours, others = portable(configuration.values), portable(other.values)
    rounds = ours.pop("rounds"), others.pop("rounds")
    differing = [
        f"{key} {ours.get(key)!r}, not {others.get(key)!r}"
        for key in {**ours, **others}
        if ours.get(key) != others.get(key)
    ]
    of_shares = configuration.schedule.depends_on_rounds() and rounds[0] != rounds[1]
    if of_shares or rounds[0] < rounds[1]:
        why = ", of which the learning rate's milestones are shares" if of_shares else ""
        differing.append(f"rounds {rounds[0]}, not {rounds[1]}{why}")
    return "; ".join(differing)


def largest_study(places: Sequence[Path]) -> DescribedStudy | None:
    """Return the study of some folders that contains those of all others; of equals the first.

    Args:
        places: The folders; those that describe no study are passed over.

    Raises:
        ConfigurationError: Of two studies neither contains the other; the message names both files.
        DataError: A study's file is corrupt.
    """
    studies = [DescribedStudy(place) for place in places if StudyFolder(place).holds_study()]
    found: DescribedStudy | None = None
    for study in studies:
        if found is None or (found.lacks(study) and not study.lacks(found)):
            found = study
    for study in studies:
        if found and (lacking := found.lacks(study)):
            raise ConfigurationError(
                f"{found.file} and {study.file} are not one study that has grown: the first "
                f"{lacking}; the second {study.lacks(found)}; give each a folder of its own"
            )
    return found
