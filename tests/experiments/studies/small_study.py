"""A small study of two rows, two partitions and two seeds, and runs that nobody has trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.results import GIVEN, OpenedStudy, StudyFolder, open_study
from bfl.experiments.studies.runner import begin
from bfl.experiments.studies.study import Run, read_study
from bfl.experiments.studies.table import StudyTable, study_table

STUDY = """
title = "Small"

[base]
rounds = 4
local-epochs = 2
clients = 3

[axes]
seed = [0, 1]
partition = ["iid", { label = "Dirichlet 0.5", partition = "dirichlet", alpha = 0.5 }]

[[rows]]
label = { model = "Flipout", rule = "WS" }
strategy = "ws"

[[rows]]
label = { model = "Flipout", rule = "NWA" }
strategy = "nwa"

[[columns]]
metric = "accuracy"
title = "accuracy (%)"
scale = 100.0
decimals = 2
published = "acc"
published-spread = "sd"

[[columns]]
metric = "negative-log-likelihood"
title = "NLL"
published = "nll"

[published]
file = "published.csv"
"""

PUBLISHED = """\
model,rule,partition,acc,sd,nll
Flipout,WS,iid,90.5,1.0,0.3
Flipout,WS,Dirichlet 0.5,80.0,2.0,0.6
Flipout,NWA,iid,70.0,3.0,
Flipout,NWA,Dirichlet 0.5,60.0,4.0,1.2
"""


def write_study(folder: Path, text: str = STUDY, published: str | None = PUBLISHED) -> Path:
    """Write a study's file with its published table, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    if published is not None:
        (folder / "published.csv").write_text(published, encoding="utf-8")
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def finish_run(
    folder: StudyFolder, run: Run, rounds: Sequence[Mapping[str, float]] = (), **numbers: float
) -> RunFolder:
    """Write what a run leaves: rounds, two by default, and metrics."""
    made = RunFolder.create(folder.runs, run.name, resolve(run.values).values, {})
    (made.path / GIVEN).write_text(tomli_w.dumps(dict(run.values)), encoding="utf-8")
    for number, entry in enumerate(rounds or ({"accuracy": 0.1}, {"accuracy": 0.2}), start=1):
        made.append_round({"round": number, "seconds": 2.0, **entry})
    if numbers:
        made.write_metrics({key.replace("_", "-"): value for key, value in numbers.items()})
    return made


def opened(folder: StudyFolder, only: Sequence[str] = ()) -> OpenedStudy:
    return open_study(folder.path, only=only)


def begun_study(folder: Path, text: str = STUDY) -> StudyFolder:
    study = read_study(write_study(folder / "files", text))
    place = StudyFolder(folder / study.name)
    begin(place, study)
    return place


def made_study(
    folder: Path, make: Callable[[StudyFolder, Run], object], text: str = STUDY
) -> StudyTable:
    """Return the table of a study, each of whose runs ``make`` may finish."""
    place = begun_study(folder, text)
    for run in place.study().runs:
        make(place, run)
    return study_table(opened(place))


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])
