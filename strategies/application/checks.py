"""Refusals and warnings of a run before its first round, and advice for when it ends early."""

from __future__ import annotations

from bfl.configuration import Configuration
from bfl.configuration.configuration import mechanisms
from bfl.data.datasets import Dataset, cached_dataset, said_of
from bfl.data.datasets.server_data import HELD_BACK
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import CONFIG, RunFolder
from bfl.experiments.run.network import given_posterior
from bfl.experiments.run.resume import check_output
from bfl.posteriors import Manifest
from strategies.application.data import divide
from strategies.application.pretraining import split_off
from strategies.federation import Federation
from strategies.start import check_pooling


def check_before_start(configuration: Configuration, clients: int) -> None:
    """Refuse whatever can be known to be wrong before an engine is started.

    Raises:
        ConfigurationError: Naming the key.
        DataError: The data are not what their format promises.
    """
    keys = configuration.keys
    check_output(configuration)
    if configuration.inference.gaussian:
        check_pooling(configuration.pooling)
    if keys.initial_posterior and not keys.resume:
        given_posterior(keys.initial_posterior)
    check_privacy(configuration)
    whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    check_table(configuration, whole)
    nodes = {number: number for number in range(clients)}
    data = divide(configuration, whole, Federation(nodes, dict.fromkeys(nodes, 0)))
    configuration.exchange.check_asked(len(configuration.sampling.sample(keys.seed, 1, clients)))
    if keys.pretrain_examples:
        split_off(data.dataset, keys.pretrain_examples, keys.pretrain_validation, data.used)


def check_table(configuration: Configuration, dataset: Dataset) -> None:
    """Refuse what is made for images, where the data are the rows of a table."""
    if not dataset.encoding:
        return
    keys, values = configuration.keys, configuration.values
    allowed = {
        "augmentation": "none",
        "student-augmentation": "none",
        "image-size": 0,
        "image-channels": 0,
        "corruptions": "none",
        "ood-dataset": "",
    }
    problems = {k: repr(v) for k, v in allowed.items() if values.get(k, v) not in (v, 0)}
    if keys.server_data not in ("", HELD_BACK):
        problems["server-data"] = f"'' or '{HELD_BACK}'"
    if configuration.architecture.convolutional:
        problems["model"] = "a network of dense layers, such as 'mlp'"
    if problems:
        raise ConfigurationError(
            f"dataset '{keys.dataset}' has rows of a table, and "
            + "; ".join(
                f"{key} is {values[key]!r}, which is for images; allowed: {remedy}"
                for key, remedy in problems.items()
            )
        )


def check_privacy(configuration: Configuration) -> None:
    """Refuse a run whose ε cannot be computed, or exceeds a budget in the first round."""
    keys = configuration.keys
    # The epochs of a round's clients are drawn where they differ; the account has each.
    epochs = max(1, round(configuration.workload.expected_epochs(keys.local_epochs)))
    for mechanism in mechanisms(configuration):
        mechanism.check_budget(epochs, keys.rounds)


def check_attackers(configuration: Configuration, federation: Federation) -> None:
    """Refuse hostile clients where not all are simulated."""
    if not federation.simulated and configuration.attackers:
        raise ConfigurationError(
            f"attack is '{configuration.attack.name}' with attackers = "
            f"{configuration.keys.attackers}: only simulated clients play hostile ones"
        )


def check_moving_statistics(configuration: Configuration, manifest: Manifest) -> None:
    """Refuse a private run whose clients would send statistics of their data."""
    moving = [parameter.name for parameter in manifest.point if not parameter.trainable]
    if moving and configuration.hides_measurements:
        words = configuration.words
        raise ConfigurationError(
            f"outgoing is '{words['outgoing']}' and example-privacy '{words['example-privacy']}', "
            f"with noise, and the network of model '{words['model']}' has {len(moving)} parameters "
            f"that follow the data and not the gradient, the first '{moving[0]}'; allowed: a model "
            "without moving statistics"
        )


def check_states(configuration: Configuration, federation: Federation) -> None:
    """Refuse clients that keep a state on nodes that have no place for it."""
    keepers = [part.name for part in configuration.parts if part.client_state_name]
    if configuration.keys.optimizer_state == "keep":
        keepers.append("optimizer-state")
    stateless = [str(p) for p, each in federation.descriptions.items() if not each.keeps_state]
    if keepers and stateless:
        raise ConfigurationError(
            f"clients keep a state from round to round ({', '.join(keepers)}) and the SuperNodes "
            f"of partitions {', '.join(stateless)} have no state-dir in their node configuration"
        )


def warnings_of_data(configuration: Configuration, dataset: Dataset) -> list[str]:
    """Return warnings of a run's data and its sites, which its report has as well."""
    partition = configuration.partition
    warnings = said_of(dataset)
    site = getattr(partition, "site_column", "")
    if dataset.encoding and site in [column.name for column in dataset.encoding.columns]:
        left_out = ",".join([*configuration.keys.reading.columns_left_out, site])
        warnings.append(
            f"partition '{partition.name}:{site}': the column is an input as well; "
            f'columns-left-out="{left_out}" drops it'
        )
    return warnings


def how_to_go_on(folder: RunFolder, backend: str = "") -> str:
    """Return how to go on from the last round that is over, by the backend if one was named."""
    path = folder.path.resolve()
    named = str(folder.config().get("plugins", "")) if folder.holds(CONFIG) else ""
    own = f" --backend {backend}" if backend else ""
    own += f" --run-config 'plugins=\"{named}\"'" if named else ""
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}{own}, "
        f'or with name="{path.name}" resume=true in the run configuration'
    )


def how_to_begin_again(folder: RunFolder) -> str:
    """Return how to make a run again that cannot be gone on with, as what it kept is lost."""
    path = folder.path.resolve()
    return (
        "going on does not bring back what is lost; begin the run again: under another name, with "
        f"--run-config {path / CONFIG} --name NAME, or, when {path} has been removed, by the "
        "command that began it"
    )
