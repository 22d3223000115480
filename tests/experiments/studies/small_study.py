"""A small study of two rows, two partitions and two seeds, and an engine that only pretends."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.engine.run import EngineRun
from bfl.experiments.results.progress import ProgressReport
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import check_output
from bfl.experiments.studies import Scale, read_study
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy, begin
from bfl.experiments.studies.planning import plan
from bfl.experiments.studies.run_result import RunResult, portable
from bfl.experiments.studies.study import Run, Study
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
published-spread-scale = 100.0

[[columns]]
metric = "negative-log-likelihood"
title = "NLL"
published = "nll"

[published]
file = "published.csv"
"""

PUBLISHED = """\
model,rule,partition,acc,sd,nll
Flipout,WS,iid,90.5,0.01,0.3
Flipout,WS,Dirichlet 0.5,80.0,0.02,0.6
Flipout,NWA,iid,70.0,0.03,
Flipout,NWA,Dirichlet 0.5,60.0,0.04,1.2
"""


def write_study(folder: Path, text: str = STUDY, published: str | None = PUBLISHED) -> Path:
    """Write a study's file with its published table, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    if published is not None:
        (folder / "published.csv").write_text(published, encoding="utf-8")
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


def scaled_study(folder: Path, scale: str = "", **files: Any) -> Study:
    return read_study(write_study(folder, **files)).scaled(Scale.parse(scale))


def planned(folder: StudyFolder, scaled: Study) -> list[Run]:
    return list(plan(OpenedStudy(folder, scaled), {}, lambda c, _: check_output(c))[0])


def finish_run(folder: StudyFolder, name: str, values: Mapping[str, Any], **numbers: float) -> None:
    """Write what a run leaves, with some metrics."""
    run = RunFolder.create(folder.runs, name, resolve(values).values, {})
    run.append_round({"round": 1, "seconds": 2.0, "accuracy": 0.1})
    run.write_metrics({key.replace("_", "-"): value for key, value in numbers.items()})


def made_up_result(run: Run, **changes: Any) -> RunResult:
    """Return the result of a study's run in which the accuracy grows by a tenth a round."""
    configuration = portable(run.configuration.values)
    rounds = [{"round": n, "accuracy": n / 10} for n in range(1, configuration["rounds"] + 1)]
    result = RunResult(
        name=run.name,
        configuration=configuration,
        metrics={"accuracy": 0.5, "negative-log-likelihood": 1.0},
        rounds=tuple(rounds),
        retention={},
        seconds=4.0,
        partition="",
        environment={},
    )
    return replace(result, **changes)


def finished_study(
    folder: Path,
    lines: Mapping[str, Sequence[float | None]],
    metric: str = "accuracy",
    more: str = "",
) -> StudyTable:
    """Make a study of one column whose methods have these numbers by seed.

    Args:
        folder: Where it is made.
        lines: The numbers by method; NaN of a run that has diverged. Of ``rounds-to-accuracy-0.5``
            the round of ten in which it is reached; infinite: in none. None: there is no such run.
        metric: The column's metric.
        more: Further tables of the study's file.
    """
    seeds = list(range(max(map(len, lines.values()))))
    rows = "".join(f'[[rows]]\nlabel = {{ method = "{name}" }}\n' for name in lines)
    text = f'title = "Small"\n[base]\nrounds = 10\nclients = 3\n[axes]\nseed = {seeds}\n'
    text += f'[[columns]]\nmetric = "{metric}"\n{rows}{more}'
    scaled = scaled_study(folder / "files", text=text, published=None)
    study = StudyFolder(folder / "study")
    begin(study, scaled, {})
    for run in scaled.runs():
        numbers, seed = lines[run.labels["method"]], int(run.labels["seed"])
        if seed >= len(numbers) or (value := numbers[seed]) is None:
            continue
        if metric == "rounds-to-accuracy-0.5":
            done = RunFolder.create(study.runs, run.name, resolve(run.values).values, {})
            for number in range(1, 11):
                accuracy = 0.5 if number >= value else 0.25
                done.append_round({"round": number, "accuracy": accuracy})
            done.write_metrics({"accuracy": 0.25})
        else:
            finish_run(study, run.name, run.values, **{metric.replace("-", "_"): value})
    return study_table(OpenedStudy(study, scaled))


def bfl(*arguments: Any) -> int:
    return main([str(argument) for argument in arguments])


class PretendingEngine:
    """Makes runs without training: four rounds, a second each, and some metrics.

    Args:
        act: Called with a run's name and every round; may raise.
    """

    def __init__(self, act: Callable[[str, int], None] = lambda name, number: None) -> None:
        self.act = act
        self.started = 0
        self.ended = 0
        self.asked: list[tuple[str, int]] = []
        self.runs: list[EngineRun] = []
        self.made_rounds: list[tuple[str, int]] = []
        self.died_after = ""

    def __enter__(self) -> PretendingEngine:
        self.started += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.ended += 1

    @property
    def alive(self) -> bool:
        return self.died_after not in [name for name, _ in self.asked]

    def run(self, overrides: Mapping[str, Any], num_supernodes: int, engine_run: EngineRun) -> None:
        self.runs.append(engine_run)
        assert overrides["resume"] is True
        name = str(overrides["name"])
        self.asked.append((name, num_supernodes))
        configuration = resolve(overrides)
        folder = RunFolder(Path(str(overrides["output-dir"])) / name)
        if not folder.holds("config.toml"):
            folder = RunFolder.create(folder.path.parent, name, configuration.values, {})
            (folder.path / "checkpoints").mkdir()
        rounds = configuration.keys.rounds
        if rounds > folder.config()["rounds"]:  # as a real run that is given more
            folder.reconfigure({**folder.config(), "rounds": rounds})
        with ProgressReport(rounds, follower=engine_run.follower) as progress:
            progress.say(f"this is {name}")
            for number in range(len(folder.rounds()) + 1, rounds + 1):
                self.act(name, number)
                self.made_rounds.append((name, number))
                folder.append_round({"round": number, "seconds": 1.0, "accuracy": number / 10})
                progress.round(number, 1.0, {"accuracy": number / 10})
        folder.write_metrics({"accuracy": 0.5, "negative-log-likelihood": 1.0})


def quiet_console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=160, force_terminal=terminal, highlight=False), stream
