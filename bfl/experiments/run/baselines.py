"""A simulation's run, and beside it each client's own model and the one of all data together."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from bfl import printing
from bfl.closing.base import HELD_BACK_SHARE, held_back_count
from bfl.configuration import resolve
from bfl.engine.flower.app import FlowerApp, Values, run_serially
from bfl.engine.flower.simulation import RayEngine
from bfl.engine.run import EngineRun
from bfl.errors import ConfigurationError, unknown_name
from bfl.evaluation.metrics.scores import paired_interval, unpaired_interval, wilson_interval
from bfl.evaluation.regression import ERROR
from bfl.experiments.results import clients as by_client
from bfl.experiments.results import run_folder as files
from bfl.experiments.results import summary
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import last_lines, plain_table
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.federation.client_metrics import TEST_EXAMPLES

LOCAL, CENTRAL = "local", "central"
GLOBAL = f"global-{by_client.ACCURACY}"
LEAST_ERRORS = 10  # fewer squared errors are too far from normal for an interval of their mean
COMPARED = ("accuracy", ERROR, "negative-log-likelihood", "expected-calibration-error")

Make = Callable[[dict[str, Any], int], object]
"""Makes a run of changed keys with a number of clients."""


def baselines_of(words: str) -> tuple[str, ...]:
    """Return the baselines in a text such as ``local+central``."""
    chosen = tuple(filter(None, words.split("+")))
    for word in chosen:
        if word not in (LOCAL, CENTRAL):
            raise ConfigurationError(
                unknown_name("baseline", word, (LOCAL, CENTRAL, "local+central"))
            )
    return chosen


def make_runs(
    app: FlowerApp,
    overrides: Values,
    clients: int,
    run: EngineRun,
    *,
    backend: str,
    backend_config: Mapping[str, Any],
    engine_log: bool = False,
    baselines: Sequence[str] = (),
    anew: bool = False,
) -> None:
    """Make a run, which has been checked, and its baselines.

    Args:
        engine_log: Whether Flower and Ray log what they do.
        anew: Whether baselines that are there are made again.
    """
    with ExitStack() as inside:
        make: Callable[..., None]
        if backend == "serial":
            printing.doing("TensorFlow is imported")
            make = partial(run_serially, app, backend_config=backend_config)
        else:
            engine = RayEngine(app, backend_config, most_clients=clients, verbose=engine_log)
            make = inside.enter_context(engine).run
        run.baselines_follow = bool(baselines)
        make(overrides, clients, engine_run=run)
        if baselines:
            keys = resolve(app.run_config(overrides)).keys
            quiet = EngineRun(Console(quiet=True))
            folder = RunFolder.named(keys.output_dir, keys.name)
            run.advice = f"bfl run --resume {folder.path} --baselines {'+'.join(baselines)} goes on"
            make_baselines(
                folder,
                baselines,
                lambda changes, count: make({**overrides, **changes}, count, engine_run=quiet),
                printing.tell if run.console is None else lambda _: None,
                anew=anew,
            )


def make_baselines(
    folder: RunFolder,
    chosen: Sequence[str],
    make: Make,
    tell: Callable[[str], None],
    *,
    anew: bool = False,
) -> None:
    """Make the baselines of a finished run, unless they are there, and write them beside it.

    One that was interrupted goes on; one of other keys than the run's is made again.
    Each has the run's rounds, epochs and test examples, holds as many examples back from training,
    and has the same closing over its own data.
    """
    ours = folder.config()
    clients = int(ours["clients"])
    called = folder.client_names() or [f"client {client}" for client in range(clients)]
    plain: dict[str, Any] = {"figures": "none", "exchange": "direct"}
    if LOCAL in chosen:
        tell(
            f"for the comparison, each of {clients} clients now trains a model of its own, one "
            "after the other, each about as long as the run; what is there already is kept"
        )

    def beside(name: str) -> RunFolder:
        return RunFolder(folder.path.with_name(f"{folder.path.name}-{name}"))

    def measured(
        name: str, changes: Mapping[str, Any], count: int, client: int | None = None
    ) -> dict[str, float]:
        baseline = beside(name)
        made, wanted = baseline.config(missing={}), {**ours, **plain, **changes, "clients": count}
        # Anything else of this name is somebody's own run, which the new one refuses to replace.
        fits = made.items() >= {**changes, "clients": count}.items()
        same = fits and all(
            wanted.get(key, was) == was for key, was in made.items() if key not in FREE_TO_CHANGE
        )
        if made and (anew or (fits and not same)):
            shutil.rmtree(baseline.path)
        if not (same and baseline.holds(files.METRICS)):
            who = "" if client is None else f": {called[client]}, {client + 1} of {clients}"
            tell(f"baseline {name}{who}")
            named = {"name": baseline.path.name, "resume": same and baseline.holds(files.CONFIG)}
            make({**plain, **changes, **named, "clients": count}, count)
        # With one verdict a client, all of them hold together at 95 % (Bonferroni).
        return compared(baseline, folder, client, 1.0 - 0.05 / (1 if client is None else clients))

    found: dict[str, Any] = {"federation": compared(folder)}
    if LOCAL in chosen:
        found[LOCAL] = {
            called[client]: measured(
                f"{LOCAL}-{client}",
                {"sampling": "single", "single-client": client},
                clients,
                client,
            )
            for client in range(clients)
        }
        alone = [beside(f"{LOCAL}-{client}") for client in range(clients)]
        found[by_client.OWN] = of_own_models(folder, alone)
        if alike := summary.only_classes(folder):
            found[by_client.OF_SEVERAL] = of_own_models(folder, alone, [*alike])
        for client, name in alike.items():
            found[LOCAL][called[client]].get(by_client.OWN, {})[by_client.ONE_CLASS] = name
    if CENTRAL in chosen:
        closes = ours.get("closing", "none") != "none"
        share = ours.get("calibration-share") or (HELD_BACK_SHARE if closes else 0.0)
        held = folder.read_json(files.PARTITION, {}).get("num_examples", ())
        sizes = [size for size in held if size]
        if share and sizes:  # few examples of each client are more than that share of all
            held_back = sum(held_back_count(size, share) for size in sizes)
            plain["calibration-share"] = held_back / sum(sizes)
        found[CENTRAL] = measured(CENTRAL, {"partition": "iid"}, 1)
    folder.write_json(files.BASELINES, found)
    for caption, rows in by_client.baseline_tables(found).items():
        tell(f"{caption}:\n{plain_table(rows)}")
    tell(by_client.baseline_verdict(found))
    tell(last_lines(folder.path, "a page to send, with this comparison")[1])


def compared(
    folder: RunFolder,
    federation: RunFolder | None = None,
    client: int | None = None,
    level: float = 0.95,
) -> dict[str, Any]:
    """Return what the tables of baselines show of a run.

    These are metrics and what ``of_examples`` has. Beside a federation's, ``own`` is the same of
    the test examples of the ``client`` whose model it is, where the run has such ones.
    """
    numbers = folder.metrics()
    found: dict[str, Any] = {each: numbers[each] for each in COMPARED if each in numbers}
    values = summary.final_values(folder)
    if values is None or not values.size:
        return found
    if len(folder.class_names()) == 2 and ERROR not in found:
        predictions, labels = folder.predictions()
        if 0 < labels.sum() < labels.size:
            found["auroc"] = summary.auroc(labels, predictions.mean_probability[:, 1])
    theirs = summary.final_values(federation) if federation else None
    if theirs is not None and theirs.size != values.size:
        theirs = None
    owners, errors = summary.owners_of(folder), ERROR in found
    found |= of_examples(values, theirs, errors=errors, level=level)
    if federation and theirs is not None and not errors:
        found |= _loss_difference(*map(summary.final_losses, (federation, folder)))
    if theirs is not None and owners is not None and (own := owners == client).any():
        found[by_client.OWN] = of_examples(values[own], theirs[own], errors=errors, level=level)
    elif (
        federation and client is not None and (row := of_nodes(federation, {client: folder}, level))
    ):
        found[by_client.OWN] = row
    return found


def of_own_models(
    federation: RunFolder, alone: Sequence[RunFolder], without: Sequence[int] = ()
) -> dict[str, Any]:
    """Return what ``of_examples`` has of all clients' own models together, except of some clients.

    Each is judged on its client's test examples; where no client has any, all by their mean.
    Nothing where they have not predicted the same examples.
    """
    by_number = {client: own for client, own in enumerate(alone) if client not in without}
    owners, found = summary.owners_of(federation), of_nodes(federation, by_number)
    if found or (owners is None and without):
        return found
    errors = ERROR in federation.metrics()
    for values_of in (summary.final_values, summary.final_losses)[: 1 if errors else 2]:
        theirs = values_of(federation)
        each = [own for own in map(values_of, alone) if own is not None]
        if theirs is None or [own.size for own in each] != [theirs.size] * len(alone):
            break
        values, rows = np.mean(each, axis=0), np.arange(theirs.size)
        if owners is not None and (owners >= 0).any():
            rows = np.flatnonzero((owners >= 0) & ~np.isin(owners, without))
            values = np.stack(each)[owners[rows], rows]
        if not rows.size:
            break
        if found:
            return found | _loss_difference(theirs[rows], values)
        found = of_examples(values, theirs[rows], errors=errors)
    return found


def of_nodes(
    federation: RunFolder, alone: Mapping[int, RunFolder], level: float = 0.95
) -> dict[str, Any]:
    """Return what ``of_examples`` has of clients' own models, on test rows that nodes alone have.

    Nothing of numbers, or where no node has tested both models on as many. As no row leaves a
    node, the interval of the difference is not paired, and Newcombe's of all rows that were right.
    """
    tested = list[list[float]]()
    for client, folder in alone.items() if summary.owners_of(federation) is None else ():
        both = [f.read_json(files.CLIENTS, {}).get(str(client), {}) for f in (folder, federation)]
        counts = {row.get(TEST_EXAMPLES) for row in both}
        if len(counts) == 1 and all(GLOBAL in row for row in both):
            (count,) = counts
            tested.append([count, *(count * row[GLOBAL] for row in both)])
    if not tested:
        return {}
    count, *right = np.sum(tested, axis=0)
    share, ours = (float(each / count) for each in right)
    return {
        by_client.ACCURACY: share,
        "examples": int(count),
        by_client.INTERVAL: [float(end) for end in wilson_interval(share, count)],
        by_client.DIFFERENCE: ours - share,
        by_client.OF_DIFFERENCE: [*unpaired_interval(ours, share, count, level)],
        by_client.UNPAIRED: True,
    }


def of_examples(
    values: summary.Numbers, theirs: summary.Numbers | None, *, errors: bool, level: float = 0.95
) -> dict[str, Any]:
    """Return a model's share of right examples, or root-mean-squared error, of ``values`` (N,).

    With its 95 % interval over the test examples; and with how much more a federation has of it,
    by its own values. The interval of this difference, of a ``level``, is paired by test example.
    Of errors it is Student's t of the differences of squared errors, divided by the sum of both
    root-mean-squared errors; fewer than ``LEAST_ERRORS`` have no interval.
    """
    count, mean = values.size, float(values.mean())
    if not errors:
        ends = [float(end) for end in wilson_interval(mean, count)]
        found: dict[str, Any] = {"accuracy": mean, "examples": count, by_client.INTERVAL: ends}
        if theirs is None:
            return found
        each = theirs - values
        ends = [*paired_interval(each, level)]
        return found | {by_client.DIFFERENCE: float(each.mean()), by_client.OF_DIFFERENCE: ends}
    own = math.sqrt(mean)
    found = {ERROR: own, "examples": count}
    if count >= LEAST_ERRORS and own:  # by the delta method
        half = _half_of_interval(values / (2.0 * own), 0.95)
        found[by_client.INTERVAL] = [max(0.0, own - half), own + half]
    if theirs is None:
        return found
    ours = math.sqrt(float(theirs.mean()))
    found[by_client.DIFFERENCE] = ours - own
    if count >= LEAST_ERRORS:
        half = _half_of_interval((theirs - values) / (ours + own or 1.0), level)
        found[by_client.OF_DIFFERENCE] = [ours - own - half, ours - own + half]
    return found


def _loss_difference(theirs: summary.Numbers, values: summary.Numbers) -> dict[str, Any]:
    """Return a federation's mean loss (N,) minus another model's, and its paired 95 % interval."""
    if values.size < LEAST_ERRORS:
        return {}
    mean, half = float((theirs - values).mean()), _half_of_interval(theirs - values, 0.95)
    return {by_client.LOSS: mean, by_client.OF_LOSS: [mean - half, mean + half]}


def _half_of_interval(values: summary.Numbers, level: float) -> float:
    from scipy.special import stdtrit

    quantile = float(stdtrit(values.size - 1, (1.0 + level) / 2.0))
    return quantile * float(values.std(ddof=1)) / math.sqrt(values.size)
