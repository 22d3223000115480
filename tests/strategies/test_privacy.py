"""What a private run refuses, and how its ε and its budget are reckoned."""

import re
from pathlib import Path
from typing import Any

import pytest
from deployment_grid import DeploymentGrid
from flwr.app import ConfigRecord, RecordDict

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.federation.outgoing import Noise
from bfl.federation.privacy import Ledger, gaussian_epsilon, sampled_gaussian_epsilon
from bfl.federation.sampling import samplings
from bfl.learning.example_privacy import DifferentiallyPrivateSgd
from bfl.learning.inferences import inferences
from bfl.posteriors import Manifest, Parameter
from clients.client_app import app
from strategies.federation import Federation, discover
from strategies.privacy import (
    LEDGER,
    PrivacyAccount,
    check_moving_statistics,
    check_privacy,
    privacy_account,
)

PRIVATE: dict[str, Any] = {
    "model": "mlp",
    "weighting": "equal",
    "outgoing": "clip+noise",
    "round-retries": 0,
}
EXAMPLES: dict[str, Any] = {"model": "mlp", "example-privacy": "dp-sgd", "round-retries": 0}
BY_SERVER: dict[str, Any] = {**PRIVATE, "noise-at": "server", "strategy": "aalv"}
MEANS: dict[str, Any] = {"inference": "flipout", "broadcast": "mean", "start": "mean"}


def test_what_goes_with_noise_is_taken() -> None:
    assert [part.name for part in resolve(PRIVATE).outgoing] == ["clip", "noise"]
    resolve({**PRIVATE, "outgoing": " Clip + noise"})
    # What is made of noised updates is no release more, whatever it is.
    for rule in ("conflation", "lp", "nwa"):
        resolve({**PRIVATE, "strategy": rule, "defence": "winsorization"})
    resolve({**BY_SERVER, "round-retries": 2, "server-optimizer": "momentum"})
    resolve({**PRIVATE, "model": "resnet8", "normalization": "group"})
    resolve({"outgoing": "clip", "model": "resnet8", "weighting": "train-size"})
    resolve({**PRIVATE, "strategy": "aalv", "exchange": "masked"})
    # Clients measure from what they were sent.
    resolve({**PRIVATE, **MEANS})
    resolve({"strategy": "scaffold", "pooling": "aalv"})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({**PRIVATE, "outgoing": "noise"}, "needs updates that are clipped"),
        ({**PRIVATE, "outgoing": "noise+clip"}, "allowed: 'clip+noise'"),
        ({**PRIVATE, "outgoing": "clip+noise+clip"}, "'clip' twice"),
        ({**PRIVATE, "outgoing": "clip+nois"}, "did you mean 'noise'"),
        ({**PRIVATE, "weighting": "train-size"}, "needs clients of equal weight"),
        ({**PRIVATE, "model": "resnet8"}, 'allowed: normalization="group"'),
        ({**PRIVATE, "round-retries": 2}, "allowed: round-retries=0"),
        ({**PRIVATE, "evaluated-by": "clients"}, 'allowed: evaluated-by="server"'),
        ({**PRIVATE, "pretrain-examples": 0.1}, "allowed: pretrain-examples=0.0"),
        (
            {**PRIVATE, "correction": "scaffold", "optimizer": "sgd", "momentum": 0.0},
            'allowed: correction="none"',
        ),
        ({**BY_SERVER, "strategy": "nwa"}, "allowed: pooling log-variance-averaging"),
        ({**BY_SERVER, "exchange": "masked"}, 'allowed: exchange="direct"'),
        ({**BY_SERVER, "defence": "winsorization"}, 'allowed: defence="none"'),
        ({**BY_SERVER, "predictive": "ensemble"}, "look at single clients' models"),
        ({**BY_SERVER, **MEANS}, "needs clients that are sent variances"),
        ({"strategy": "dp-fedavg", "model": "mlp", **MEANS}, "allowed: broadcast posterior"),
        ({**PRIVATE, "epsilon-budget": 0.0}, "epsilon-budget is 0.0"),
        ({**PRIVATE, "privacy-delta": 1.0}, "privacy-delta is 1.0"),
        ({**PRIVATE, "clip-norm": 0.0}, "clip-norm is 0.0"),
        ({**PRIVATE, "noise-multiplier": -0.1}, "noise-multiplier is -0.1"),
    ],
)
def test_what_would_break_the_guarantee_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        resolve(values)


def test_a_plugins_network_with_statistics_of_its_data_is_refused() -> None:
    trained = Parameter("dense/bias", (3,), False, "zeros")
    moving = Parameter("norm/moving_mean", (3,), False, "zeros", trainable=False)
    check_moving_statistics(resolve(PRIVATE), Manifest((trained,)))
    check_moving_statistics(resolve({"model": "mlp"}), Manifest((trained, moving)))
    with pytest.raises(ConfigurationError, match="norm/moving_mean"):
        check_moving_statistics(resolve(PRIVATE), Manifest((trained, moving)))
    with pytest.raises(ConfigurationError, match="norm/moving_mean"):
        check_moving_statistics(resolve(EXAMPLES), Manifest((trained, moving)))


def test_a_budget_that_no_round_keeps_is_refused_with_what_would_do() -> None:
    values = {**PRIVATE, "epsilon-budget": 2.0, "noise-multiplier": 1.0, "rounds": 4}
    with pytest.raises(ConfigurationError, match="epsilon-budget is 2, and one round") as refused:
        check_privacy(resolve(values))
    for rounds in (1, 4):
        needed = Noise().mechanism().multiplier_for(2.0, rounds)  # type: ignore[union-attr]
        assert f"{needed:.4g}" in str(refused.value)
        assert gaussian_epsilon(needed / 2, rounds, 1e-5) == pytest.approx(2.0)
        check_privacy(resolve({**values, "noise-multiplier": needed * 1.0001}))


def test_an_absent_accountant_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_privacy(resolve({"model": "mlp"}))
    with pytest.raises(ConfigurationError, match=r"install bfl\[privacy\]"):
        check_privacy(resolve(PRIVATE))


def account(ledger: Ledger, budget: float = 1e6, fraction: float = 0.25) -> PrivacyAccount:
    sampling = samplings.create("random", {"fraction-train": fraction})
    noise = Noise(noise_multiplier=4.0, epsilon_budget=budget)
    return account_of(noise, lambda number: sampling.sample(3, number, 8), ledger)


def account_of(part: Any, asked: Any, ledger: Ledger, epochs: int = 1) -> PrivacyAccount:
    mechanism = part.mechanism()
    assert mechanism is not None
    return PrivacyAccount(
        (mechanism,), 20, lambda number: dict.fromkeys(asked(number), epochs), ledger
    )


def test_a_round_counts_for_those_whom_it_asks() -> None:
    """2 of 8 clients a round: who is asked most often decides, and nothing is amplified."""
    sampling = samplings.create("random", {"fraction-train": 0.25})
    asked = [i for number in range(1, 21) for i in sampling.sample(3, number, 8)]
    most = max(asked.count(i) for i in range(8))
    assert 5 <= most < 20
    reckoned = account(Ledger(None))
    found = []
    for number in range(1, 21):
        before = reckoned.epsilons(number)
        assert reckoned.begin(number)
        assert reckoned.epsilons() == before
        found.append(before["epsilon"])
    assert found == sorted(found)
    assert found[0] == pytest.approx(gaussian_epsilon(2.0, 1, 1e-5))
    assert found[-1] == pytest.approx(gaussian_epsilon(2.0, most, 1e-5))
    assert not reckoned.begin(21)
    assert reckoned.reason_to_stop(21) == ""


def test_the_budget_ends_a_run_before_the_round_that_would_exceed_it() -> None:
    budget = gaussian_epsilon(2.0, 3, 1e-5) + 1e-9
    reckoned = account(Ledger(None), budget, fraction=1.0)
    assert [reckoned.begin(number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert reckoned.epsilons()["epsilon"] <= budget < reckoned.epsilons(4)["epsilon"]
    assert "stopped before round 4: it would lead to ε = " in reckoned.reason_to_stop(4)
    so_far = f"{reckoned.epsilons()['epsilon']:.4g}"
    assert f"so far ε = {so_far} at δ = 1e-05" in reckoned.reason_to_stop(4)


@pytest.mark.parametrize(("anew", "releases"), [(False, 3), (True, 4)])
def test_a_round_that_is_made_again_counts_where_its_noise_is_another(
    tmp_path: Path, anew: bool, releases: int
) -> None:
    """Killed in round 3, after two are over: a seed gives round 3 the noise that it had."""
    configuration = resolve({**PRIVATE, "rounds": 9})

    def begun(finished: int) -> PrivacyAccount:
        found = privacy_account(configuration, 4, tmp_path, finished, anew=anew)
        assert found is not None
        assert found.begin(finished + 1)
        return found

    for finished in (0, 1, 2):
        begun(finished)
    found = begun(2).epsilons()["epsilon"]
    assert found == pytest.approx(gaussian_epsilon(0.5, releases, 1e-5))
    assert (tmp_path / LEDGER).exists() == anew


def dp_sgd(**values: Any) -> DifferentiallyPrivateSgd:
    return DifferentiallyPrivateSgd(**values)


def test_each_step_of_the_client_that_makes_most_counts() -> None:
    """A round of 3 epochs at q = 0.2 has 15 steps; client 1 is asked in every other round."""
    part = dp_sgd(example_sampling_rate=0.2, example_noise_multiplier=1.5)
    reckoned = account_of(part, lambda n: [0, 1] if n % 2 else [0], Ledger(None), epochs=3)
    for number in (1, 2, 3):
        assert reckoned.begin(number)
    assert reckoned.epsilons() == {"example-epsilon": sampled_gaussian_epsilon(1.5, 0.2, 45, 1e-5)}


def test_epochs_are_those_of_the_workload_and_both_units_have_an_account(tmp_path: Path) -> None:
    configuration = resolve(
        {
            **PRIVATE,
            **EXAMPLES,
            "workload": "uniform",
            "most-epochs": 9,
            "epochs-drawn": "each-round",
            "noise-multiplier": 3.0,
            "example-sampling-rate": 0.5,
        }
    )
    epochs = [
        [configuration.workload.epochs(0, n, client, 4, 5) for n in (1, 2)] for client in range(4)
    ]
    steps = max(2 * sum(of_client) for of_client in epochs)
    assert len({tuple(of_client) for of_client in epochs}) > 1
    found = privacy_account(configuration, 4, tmp_path, 2, anew=False)
    assert found is not None
    assert found.epsilons() == {
        "epsilon": gaussian_epsilon(1.5, 2, 1e-5),
        "example-epsilon": sampled_gaussian_epsilon(1.0, 0.5, steps, 1e-5),
    }


def test_the_budget_of_examples_ends_a_run_as_well() -> None:
    budget = sampled_gaussian_epsilon(1.0, 0.1, 30, 1e-5) + 1e-9
    part = dp_sgd(example_epsilon_budget=budget)
    reckoned = account_of(part, lambda number: [0], Ledger(None))
    assert [reckoned.begin(number) for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert f"and example-epsilon-budget is {budget:g}" in reckoned.reason_to_stop(4)
    values = {**EXAMPLES, "example-epsilon-budget": 1.0, "rounds": 3, "local-epochs": 2}
    with pytest.raises(ConfigurationError, match="example-epsilon-budget is 1, and one") as refused:
        check_privacy(resolve({**values, "example-noise-multiplier": 0.7}))
    for rounds in (1, 3):
        needed = dp_sgd().mechanism().multiplier_for(1.0, 20 * rounds)  # type: ignore[union-attr]
        assert f"{needed:.4g}" in str(refused.value)
        check_privacy(resolve({**values, "example-noise-multiplier": needed * 1.0001}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"example-clip-norm": 0.0}, "example-clip-norm above 0"),
        ({"model": "resnet8"}, 'allowed: normalization="group"'),
        ({"round-retries": 2}, "allowed: round-retries=0"),
        ({"evaluated-by": "clients"}, 'allowed: evaluated-by="server"'),
        ({"pretrain-examples": 0.1}, "allowed: pretrain-examples=0.0"),
        ({"personalization": "distillation"}, 'allowed: personalization="none"'),
        ({"strategy": "scaffold"}, 'allowed: correction="none"'),
        ({"closing": "bayesian-head"}, 'or example-privacy="none"'),
        ({"partition": "step-overlapping", "minor-examples": 5.0}, "goes with no example that"),
        ({"example-noise-multiplier": -1.0}, "example-noise-multiplier is -1.0"),
        ({"example-clip-norm": -1.0}, "example-clip-norm is -1.0"),
        ({"inference": "laplace", "strategy": "ws"}, "goes with no variances that are fitted"),
        ({"example-sampling-rate": 1.1}, "example-sampling-rate is 1.1"),
        ({"example-delta": 0.0}, "example-delta is 0.0"),
        ({"example-epsilon-budget": 0.0}, "example-epsilon-budget is 0.0"),
    ],
)
def test_what_would_tell_of_single_examples_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        resolve({**EXAMPLES, **values})


def test_what_goes_with_private_examples_is_taken() -> None:
    for inference in set(inferences.names()) - {"ivon", "laplace"}:
        resolve({**EXAMPLES, "inference": inference, "strategy": "nwa"})
    resolve({**EXAMPLES, "strategy": "pvi", "weighting": "train-size"})
    resolve({**EXAMPLES, "objective": "elbo+proximal", "optimizer-state": "keep"})
    resolve({**EXAMPLES, "model": "resnet8", "normalization": "group"})
    resolve({**EXAMPLES, "exchange": "masked", "strategy": "aalv"})
    # Without noise there is no guarantee to break.
    resolve({**EXAMPLES, "example-noise-multiplier": 0.0, "round-retries": 2})


def federation(private: bool, *configs: dict[str, Any]) -> Federation:
    grid = DeploymentGrid(app, [], len(configs))
    for partition_id, config in enumerate(configs):
        grid.start(partition_id, **config)
    return discover(grid, 0, timeout=10.0, poll=0.001, private=private)


def test_nodes_with_data_of_their_own_do_not_say_how_much() -> None:
    own: dict[str, Any] = {"dataset": "digits"}
    assert set(federation(False, own, own).own_examples.values()) == {1437}
    assert set(federation(True, own, own).own_examples.values()) == {1}
    assert federation(False, {**own, "private": True}, own).own_examples == {0: 1, 1: 1437}
    assert set(federation(True, {}, {}).own_examples.values()) == {0}


def test_whose_noise_is_drawn_anew_is_known() -> None:
    simulated = {"simulation": True}
    assert federation(True, {}, {}).noise_anew
    assert federation(True, simulated, {}).noise_anew
    assert not federation(True, simulated, simulated).noise_anew
    # A client of another framework says nothing of it.
    from bfl.federation.node_description import NodeDescription
    from bfl.federation.wire import CONFIG

    said = NodeDescription(0, 1, 0, "").to_content()
    record: Any = said[CONFIG]
    old = RecordDict({CONFIG: ConfigRecord({k: v for k, v in record.items() if k != "noise-anew"})})
    assert NodeDescription.from_content(old).noise_anew
    # Of another version, it may say more.
    more = RecordDict({CONFIG: ConfigRecord({**record, "--dataclass-self--": 1, "own-word": 2.5})})
    assert NodeDescription.from_content(more) == NodeDescription.from_content(said)
