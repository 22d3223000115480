"""Messages between server and clients, as Flower records; both sides read and write them here.

A posterior is three contiguous arrays. The records ``arrays``, ``config`` and ``metrics`` are those
of Flower's own strategies. docs/wire-format.md is for clients without this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.parts import Arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
EXTRAS = "beside"
"""The record of the arrays that the parts of a method send besides a posterior, both ways."""

TRAIN, CLOSE, EVALUATE = "train", "train.close", "evaluate"
"""The types of messages that ask a client to train, for sums over its data at the end, and for
metrics of the final model on test data of its node's own.

Others stand in ``node_description`` and ``secure_aggregation``; clients/client_app.py has what
answers each. A new type that clients of other code are sent raises ``WIRE_FORMAT``.
"""

WIRE_FORMAT = 5
"""The version of what is sent, in each task and in a node's description; it grows with every change
that one side could misunderstand."""

VERSION = "wire-format"
PRIVATE = "private"
"""Entry of a query where clients keep what they measure, their numbers of examples included."""

NUM_CLASSES = "num-classes"
CLASS_NAMES = "class-names"
"""Number of classes of the run, in a task and in a query that asks of a node's own labels."""

DATASET, DATA_DIR = "dataset", "data-dir"
"""The run's data set, in a query: a node looks for it, unless it has data of its own. Its folder on
the server's machine is in another query, to nodes that read paths of the run."""

RUN_CANNOT_GO_ON = 100
"""Code of an error of a client that has lost its state, which ends a simulated run; Flower's codes
are below."""

Positions = npt.NDArray[np.int64]


class WireFormatError(ConfigurationError, ValueError):
    """A message is not as docs/wire-format.md says; of one node of many, it may be passed over."""

    public = True


def check_version(record: Mapping[str, Any], who: str) -> None:
    """Raise WireFormatError for a record of another version of the wire format."""
    given = record.get(VERSION)
    if given != WIRE_FORMAT:
        says = f"speaks {VERSION} {given}" if given is not None else f"does not say its {VERSION}"
        raise WireFormatError(
            f"{who} {says}; this side speaks {VERSION} {WIRE_FORMAT}: install one version of bfl "
            "on both sides, or see docs/wire-format.md"
        )


@dataclass(frozen=True)
class TrainTask:
    """Task of one client in one round.

    Attributes:
        server_round: The round, from 1.
        configuration: The run's configuration, as a JSON object of flat keys.
        examples: (N,) positions of the client's examples in the training data; None when the node
            has data of its own.
        run_folder: The run's folder on the server, absolute, or empty.
        run_key: See ``bfl.experiments.results.run_folder.run_key``; may be empty.
        pooled_round: The last round in which the server has pooled this client's update, whose
            state the client takes up; 0: none yet, and the client begins anew.
        damping: The share of that round's step that was made; 1: all.
        test_examples: (M,) positions of the client's own test examples in the run's test data; None
            where clients do not evaluate, or the node has data of its own.
        likelihood_examples: How many examples the client's likelihood counts; 0: its own.
    """

    server_round: int
    partition_id: int
    configuration: str
    num_classes: int
    examples: Positions | None = None
    run_folder: str = ""
    run_key: str = ""
    pooled_round: int = 0
    damping: float = 1.0
    test_examples: Positions | None = None
    likelihood_examples: int = 0

    def to_config(self) -> ConfigRecord:
        """Return the task as a record, without what has its default: each entry is checked."""
        record = ConfigRecord({VERSION: WIRE_FORMAT})
        for entry, field in ENTRIES.items():
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.astype("<i4").tobytes()
            if value is not None and value != field.default:
                record[entry] = value
        return record

    @classmethod
    def from_config(cls, record: ConfigRecord) -> TrainTask:
        """Return the task in a record."""
        check_version(record, "the server")
        given = [(ENTRIES[key], record[key]) for key in ENTRIES.keys() & record.keys()]
        return cls(**{field.name: _READ[str(field.type)](value) for field, value in given})


_READ: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "str": str,
    "float": float,
    "Positions | None": lambda packed: np.frombuffer(packed, "<i4").astype(np.int64),
}
"""Readers of a task's entries by their types: other languages may send whole numbers as floats."""

ENTRIES = {field.name.replace("_", "-"): field for field in fields(TrainTask)}
"""The fields of a task by the names of their entries."""


def train_content(
    arrays: ArrayRecord,
    task: TrainTask,
    more: Mapping[str, Any] | None = None,
    extras: ArrayRecord | None = None,
) -> RecordDict:
    """Return the content of the message that asks a client to train.

    Args:
        more: Values of a ServerApp's own, for its own clients, besides those of the task.
        extras: What the parts of the method send besides the posterior, if anything.
    """
    config = task.to_config()
    if more:
        if taken := ", ".join(sorted(more.keys() & {VERSION, *ENTRIES})):
            raise ConfigurationError(f"train_config has {taken}; choose names that no task has")
        config.update(more)
    content = RecordDict({ARRAYS: arrays, CONFIG: config})
    if extras:
        content[EXTRAS] = extras
    return content


def reply_content(
    posterior: Posterior | Arrays, metrics: Mapping[str, float | int], extras: Arrays | None = None
) -> RecordDict:
    """Return the content of a client's reply.

    Args:
        posterior: The posterior, or what the run's exchange has made of it.
        metrics: With ``num-examples``, the client's number of training examples.
        extras: The arrays that the parts of the method send besides the posterior.
    """
    vectors = posterior.vectors() if isinstance(posterior, Posterior) else posterior
    content = RecordDict({ARRAYS: vectors_to_arrays(vectors), METRICS: MetricRecord(dict(metrics))})
    if extras:
        content[EXTRAS] = vectors_to_arrays(extras)
    return content


def extra_arrays(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """Return what a message carries besides its posterior, by name; nothing if there is nothing."""
    record = content.get(EXTRAS)
    if record is None:
        return {}
    if not isinstance(record, ArrayRecord):
        raise TypeError(f"the record '{EXTRAS}' holds no arrays")
    return vectors_from_arrays(record)


def posterior_to_arrays(posterior: Posterior, vectors: Sequence[str] = VECTORS) -> ArrayRecord:
    """Return a posterior, or some of its vectors, as a record of one-dimensional arrays."""
    return vectors_to_arrays({name: getattr(posterior, name) for name in vectors})


def posterior_from_arrays(arrays: ArrayRecord, variance: float | None = None) -> Posterior:
    """Return the posterior in a record.

    Args:
        variance: What all variances are in a record that has none; None: it must have some.
    """
    if variance is None or "variance" in arrays:
        return Posterior(**{name: _unpack(arrays[name]) for name in VECTORS})
    mean = _unpack(arrays["mean"])
    return Posterior(mean, np.full_like(mean, variance), _unpack(arrays["point"]))


def read_posterior(arrays: ArrayRecord, manifest: Manifest | None, name: str) -> Posterior:
    """Return the posterior in arrays of that name, or raise ConfigurationError."""
    if set(arrays) != set(VECTORS):
        raise ConfigurationError(
            f"{name} has {', '.join(sorted(arrays)) or 'no arrays'}; expected "
            f"{', '.join(VECTORS)}: posterior_to_arrays of bfl.federation.wire makes them"
        )
    posterior = posterior_from_arrays(arrays)
    try:
        posterior.check()
        if manifest:
            manifest.check(posterior)
    except PosteriorError as error:
        raise ConfigurationError(f"{name}: {error}") from error
    return posterior


def vectors_to_arrays(vectors: Arrays) -> ArrayRecord:
    """Return vectors by name as a record."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in vectors.items()})


def vectors_from_arrays(arrays: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """Return the vectors in a record by name, read-only."""
    return {name: _unpack(array) for name, array in arrays.items()}


def _unpack(array: Array) -> npt.NDArray[Any]:
    read = array.numpy()
    if not isinstance(read, np.ndarray):  # NumPy also reads archives, of any number of arrays
        raise TypeError(f"the data are {type(read).__name__}; expected one array")
    read.flags.writeable = False  # what has been checked stays sound
    return read
