"""Wrong updates: what reaches the pool is sound, and the rest changes nothing."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy_server import NumpyServer
from small_federation import federated_round, make_app, make_clients, make_grid, play, shifted

import strategies
from bfl.aggregation.plausibility import REACH
from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.engine.flower import new_run
from bfl.engine.flower.replies import set_message_id
from bfl.errors import RunError
from bfl.experiments.results.clients import metrics_of_clients
from bfl.federation.wire import ARRAYS, METRICS, TrainTask, reply_content
from bfl.learning.priors import priors
from bfl.posteriors import Posterior
from strategies.server_state import ServerState
from strategies.updates import RefusedUpdateError, read_update

SIZE, POINTS = 3, 2
SENT = Posterior(
    np.linspace(-1, 1, SIZE, dtype=np.float32),
    np.full(SIZE, 0.25, np.float32),
    np.ones(POINTS, np.float32),
)

odd_floats = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, np.nan, np.inf, -np.inf, -1.0, 1e-45]
)
vectors = st.one_of(
    arrays.arrays(np.float32, SIZE, elements=st.floats(-5, 5, width=32)),
    arrays.arrays(np.float32, SIZE, elements=odd_floats),
    arrays.arrays(
        arrays.floating_dtypes() | arrays.integer_dtypes() | arrays.boolean_dtypes(),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
)
good_variances = arrays.arrays(np.float32, SIZE, elements=st.floats(0.015625, 4, width=32))
good_points = arrays.arrays(np.float32, POINTS, elements=st.floats(-5, 5, width=32))
counts: st.SearchStrategy[Any] = st.one_of(
    st.integers(1, 1000),
    st.integers(-(2**62), 2**62),
    st.floats(),
    st.lists(st.floats(), max_size=2),
)
array_records = st.one_of(
    st.fixed_dictionaries({"mean": vectors, "variance": good_variances, "point": good_points}),
    st.fixed_dictionaries(
        {"mean": vectors, "variance": vectors | good_variances, "point": vectors | good_points}
    ),
    st.dictionaries(st.sampled_from(["mean", "variance", "point", "extra", ""]), vectors),
)
metric_records = st.one_of(
    st.fixed_dictionaries({"num-examples": counts}),
    st.dictionaries(st.sampled_from(["num-examples", "loss", "x"]), counts),
)


def content(arrays_: Any, metrics: Any) -> RecordDict:
    return RecordDict(
        {
            ARRAYS: ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays_.items()}),
            METRICS: MetricRecord(metrics),
        }
    )


contents = st.one_of(
    st.builds(content, array_records, metric_records),
    st.just(RecordDict()),
    st.builds(lambda text: RecordDict({ARRAYS: ConfigRecord({"mean": text})}), st.text(max_size=5)),
    st.builds(
        lambda data: RecordDict(
            {
                ARRAYS: ArrayRecord({"mean": Array("float32", (3,), "numpy.ndarray", data)}),
                METRICS: MetricRecord({"num-examples": 1}),
            }
        ),
        st.binary(max_size=20),
    ),
)


def question() -> Message:
    """Return a message that may be replied to."""
    new_run({})
    message = Message(RecordDict(), 4, "train")
    set_message_id(message, "asked")
    return message


class OneRound:
    """One round of four clients, the fourth of which sends what it is told to, or fails."""

    def __init__(self, rule: str) -> None:
        self.fuzzed: RecordDict | None = None

        def reply(task: TrainTask, received: Posterior) -> RecordDict:
            if task.partition_id < 3:
                return shifted(task, received)
            if self.fuzzed is None:
                raise RuntimeError("no reply")
            return self.fuzzed

        strategy = strategies.PosteriorPooling(rule=rule, weighting="distance")
        self.method = strategy.method
        self.most = strategy.client_options.max_examples
        self.clients = make_clients(make_grid(make_app(reply)), max_examples=self.most)

    def pool(self, fuzzed: RecordDict | None) -> tuple[Posterior, Any]:
        self.fuzzed = fuzzed
        state, report = federated_round(self.method, ServerState.first(SENT, 4), self.clients, 0)
        return state.posterior, report.metrics


RULES = ("conflation", "linear-pool", "ws", "dwc")


@pytest.mark.slow
def test_fuzzed_updates_leave_a_sound_posterior() -> None:
    rounds = [OneRound(rule) for rule in RULES]
    without = [one_round.pool(None)[0].digest() for one_round in rounds]
    seen = {True: 0, False: 0}

    @settings(
        max_examples=2500,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(contents)
    def pool_with(fuzzed: RecordDict) -> None:
        try:
            read_update(Message(fuzzed, reply_to=question()), 3, SENT, most_examples=rounds[0].most)
            accepted = True
        except RefusedUpdateError:
            accepted = False
        seen[accepted] += 1
        for n in range(len(RULES)) if accepted else (seen[False] % len(RULES),):
            pooled, metrics = rounds[n].pool(fuzzed)
            pooled.check(like=SENT)
            assert metrics["refused"] == 1 or accepted
            assert metrics["refused"] == 0 or pooled.digest() == without[n]

    pool_with()
    assert sum(seen.values()) >= 2500
    assert min(seen.values()) > 50  # both sorts were tried


@pytest.mark.parametrize(
    ("arrays_", "metrics", "reason"),
    [
        ({}, {}, "the arrays are none"),
        ({"mean": np.zeros(3, np.float32)}, {}, "the arrays are mean"),
        ({"mean": np.full(3, np.nan, np.float32)}, {}, "not finite.*learning-rate"),
        ({"variance": np.zeros(3, np.float32)}, {}, "not positive"),
        ({"mean": np.zeros(3, np.float64)}, {}, "type float64; expected float32"),
        ({"mean": np.zeros(4, np.float32)}, {}, "mean has 4 values; expected 3"),
        ({"mean": np.zeros((3, 1), np.float32)}, {}, "one dimension"),
        ({"extra": np.zeros(3, np.float32)}, {}, "extra"),
        (None, {"num-examples": 0}, "1 to 9007199254740992"),
        (None, {"num-examples": 2.5}, "whole number"),
        (None, {"num-examples": 2**60}, "1 to 9007199254740992"),
        (None, {"num-examples": float("inf")}, "whole number"),
        (None, {"other": 1}, "num-examples is None"),
    ],
)
def test_the_reason_is_given(arrays_: Any, metrics: Any, reason: str) -> None:
    whole = {"mean": SENT.mean, "variance": SENT.variance, "point": SENT.point}
    partial = arrays_ == {} or (arrays_ is not None and metrics == {} and reason.startswith("the"))
    given_arrays = arrays_ if partial else {**whole, **(arrays_ or {})}
    reply = Message(
        content(given_arrays, {"num-examples": 1} if arrays_ is not None else metrics),
        reply_to=question(),
    )
    with pytest.raises(RefusedUpdateError, match=reason):
        read_update(reply, 0, SENT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("meme-accuracy", 1.5),
        ("meme-retention-area-accuracy-predictive-entropy", 1e9),
        ("better-accuracy", 0.31),
        ("test-examples", -7.0),
        ("test-examples", 7.5),
        ("test-examples", 1e17),
        ("positives", 9.0),
        ("right-positives", 5.0),
        ("right-negatives", 5.0),
    ],
)
def test_numbers_that_nobody_can_have_measured_are_found(name: str, value: float) -> None:
    honest = {
        "meme-accuracy": 0.2,
        "personal-accuracy": 0.3,
        "better-accuracy": 0.3,
        "meme-negative-log-likelihood": -1e-17,  # rounding makes nobody a liar
    }
    honest |= {"test-examples": 8, "positives": 4, "right-positives": 4, "right-negatives": 3}
    _, known = metrics_of_clients()

    def impossible(metrics: dict[str, float]) -> dict[str, float]:
        reply = Message(reply_content(SENT, {"num-examples": 1, **metrics}), reply_to=question())
        return read_update(reply, 0, SENT, known_metrics=known).impossible

    assert not impossible(honest)
    assert name in impossible({**honest, name: value})
    assert impossible({"better-accuracy": 0.9})


def test_an_archive_in_the_place_of_an_array_is_refused() -> None:
    """NumPy reads it without an error, and what it gives is no array."""
    archive = BytesIO()
    np.savez(archive, SENT.mean)
    whole = content(
        {"mean": SENT.mean, "variance": SENT.variance, "point": SENT.point}, {"num-examples": 1}
    )
    record: Any = whole[ARRAYS]
    record["mean"] = Array("float32", (SIZE,), "numpy.ndarray", archive.getvalue())
    one_round = OneRound("conflation")
    pooled, metrics = one_round.pool(whole)
    assert metrics["refused"] == 1
    assert pooled.digest() == one_round.pool(None)[0].digest()


def test_who_sends_nonsense_takes_nobody_elses_second_try() -> None:
    asked: list[int] = []

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        asked.append(task.partition_id)
        if task.partition_id >= 2 and asked.count(task.partition_id) == 1:
            raise RuntimeError("out of memory, once")
        nonsense = content({"nonsense": np.ones(1)}, {"num-examples": 1})
        return nonsense if task.partition_id == 0 else shifted(task, received)

    pooled, (finished,), _ = play(reply, start=SENT, min_clients=2, round_retries=2)
    assert pooled.mean == pytest.approx(SENT.mean + 2)  # clients 1, 2, 3
    assert finished.metrics["refused"] == 1
    assert asked == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize(
    ("rule", "weighting"),
    [
        *((rule, "train-size") for rule in pooling_rules.names()),
        *(("ws", weighting) for weighting in weightings.names()),
    ],
)
def test_no_number_of_one_client_ends_the_run(rule: str, weighting: str) -> None:
    """In float64, where a square or an inverse may overflow, what is pooled is bounded."""
    sent = Posterior(*(getattr(SENT, name).astype(float) for name in ("mean", "variance", "point")))
    extremes = {
        "mean": [(99.0, 0), (1e3, 1), (-1.7e308, 1)],
        "variance": [(9e3, 0), (1e-60, 0), (5e-324, 1), (1.7e308, 1)],
        "point": [(-99.0, 0), (1.7e308, 1)],
    }
    sends: dict[str, Any] = {}

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        arrays_ = {key: getattr(sent, key) * (1 + task.partition_id) for key in extremes}
        if task.partition_id == 1:
            arrays_[sends["name"]] = np.full_like(arrays_[sends["name"]], sends["value"])
        reported = dict.fromkeys(method.weighting.reads, 1.0)
        return content(arrays_, {"num-examples": 5, **reported})

    method = strategies.PosteriorPooling(rule=rule, weighting=weighting).method
    server = NumpyServer(sent.size + sent.point.size)
    clients = make_clients(make_grid(make_app(reply)))
    for name, values in extremes.items():
        for value, refused in values:
            sends.update(name=name, value=value)
            first = ServerState.first(sent, 4)
            state, report = federated_round(method, first, clients, 0, server=server)
            state.posterior.check(like=sent)
            assert report.metrics["refused"] == refused, (name, value)


D = 6
START = Posterior(np.linspace(-0.5, 0.5, D, dtype=np.float32), np.full(D, 0.01, np.float32))

HOSTILE = {
    # Each value is one that could be honest; the change as a whole is not.
    "all means 99": ("mean", slice(None), 99.0),
    **{f"all means {value:g}": ("mean", slice(None), value) for value in (1e3, 1e10, 1e18, 3e38)},
    "one mean 3e38": ("mean", 3, 3e38),
    "one mean -3e38": ("mean", 3, -3e38),
    **{f"variances {value:g}": ("variance", slice(None), value) for value in (1e10, 1e20, 3e38)},
}


def reply_of(hostile: set[int], sends: tuple[str, Any, float]) -> Any:
    """Return what clients reply: honest ones a small change, hostile ones the values given."""

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        step = np.float32(0.1 + 0.05 * task.partition_id)
        vectors = {
            "mean": received.mean + step,
            "variance": received.variance * np.float32(0.9),
            "point": received.point,
        }
        if task.partition_id in hostile:
            name, where, value = sends
            vectors[name] = vectors[name].copy()
            vectors[name][where] = value
        measured = {"num-examples": 10, **dict.fromkeys(reported, 1.0)}
        return reply_content(Posterior(**vectors), measured)

    reported = {name for weighting in weightings.classes() for name in weighting.reads}
    return reply


def settings_of(rule: str, weighting: str = "train-size") -> dict[str, Any]:
    cavity = "cavity" in pooling_rules.create(rule).requires()
    return {
        "rule": rule,
        "weighting": weighting,
        "start": START,
        "server": NumpyServer(D),
        **({"parts": (priors.create("cavity"),), "scale_floor": 0.0} if cavity else {}),
    }


@pytest.mark.parametrize("rule", pooling_rules.names())
@pytest.mark.parametrize("sends", HOSTILE.values(), ids=HOSTILE)
def test_the_sender_is_refused_and_the_others_pooled(rule: str, sends: Any) -> None:
    for clients, hostile, partition in ((3, 1, False), (2, 0, False), (5, 4, True)):
        assigned = [np.arange(10)] * clients if partition else None
        more = {**settings_of(rule), "clients": clients, "partition": assigned, "rounds": 2}
        pooled, seen, told = play(reply_of({hostile}, sends), **more)
        honest = {k for k in range(clients) if k != hostile}
        assert [done.metrics["refused"] for done in seen] == [1, 1]
        assert [{entry["client"] for entry in done.clients} for done in seen] == [honest] * 2
        assert all(f"client {hostile}: update refused" in text for text in told)
        assert np.abs(pooled.mean).max() < 5


def test_an_implausible_update_is_none_of_those_that_are_enough() -> None:
    hostile = reply_of({1}, HOSTILE["all means 1e+10"])
    settings = {**settings_of("ws"), "clients": 3, "min_clients": 3, "round_retries": 0}
    with pytest.raises(RunError, match="2 of 3 clients have sent a usable posterior"):
        play(hostile, **settings)


@pytest.mark.parametrize("partition", [None, [np.arange(10)] * 7])
def test_a_round_ends_with_the_names_of_those_who_were_pooled_too_early(partition: Any) -> None:
    """The first two of seven are hostile, so the middle one of the first three is as well."""
    hostile = reply_of({0, 1}, HOSTILE["all means 1e+10"])
    settings = {**settings_of("ws"), "partition": partition, "clients": 7}
    with pytest.raises(RunError, match=r"update of client 0: no honest .* update of client 1: no"):
        play(hostile, **settings)


def test_honest_values_that_grow_alike_or_stay_below_the_reach_are_pooled() -> None:

    def grows(task: TrainTask, received: Posterior) -> RecordDict:
        scale = np.float32(1e6 * (1 + task.partition_id))
        far = Posterior(received.mean * scale, received.variance * scale**2, received.point)
        return reply_content(far, {"num-examples": 10})

    def differs(task: TrainTask, received: Posterior) -> RecordDict:
        mean = np.full(D, 1e-6, np.float32)
        mean[0] = (1e-6, 1e-6, 0.99 * REACH)[task.partition_id]
        return reply_content(
            Posterior(mean, received.variance, received.point), {"num-examples": 9}
        )

    for reply in (grows, differs):
        _, (done,), told = play(reply, **settings_of("ws", "equal"), clients=3)
        assert done.metrics["clients"] == 3
        assert not [text for text in told if "refused" in text]
