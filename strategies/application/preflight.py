"""Refusals, warnings and advice of a run before its first round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bfl.aggregation.server import UsesServer
from bfl.closing.base import held_back_count
from bfl.closing.chain import schedule
from bfl.configuration import Configuration
from bfl.configuration.configuration import mechanisms, says_nothing_measured
from bfl.data.datasets import Dataset, cached_dataset, said_of
from bfl.data.datasets.server_data import HELD_BACK, ServerData, check_apart
from bfl.data.datasets.subset import with_test_examples
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import CONFIG, RunFolder
from bfl.experiments.run.network import check_images, given_posterior, personal_architecture
from bfl.experiments.run.resume import Checkpoint, check_output
from bfl.federation.privacy import check_accountant
from bfl.federation.wire import Positions
from bfl.learning.personalizations import PersonalModel
from bfl.posteriors import Manifest
from strategies.application.division import (
    check_partition,
    clients_positions,
    own_test_positions,
    split,
)
from strategies.application.evaluation import server_data
from strategies.application.pretraining import split_off
from strategies.federation import Federation
from strategies.preflight import check_pooling


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
    dataset = with_test_examples(whole, keys.test_examples)
    refuse_for_tables(configuration, dataset)
    configuration.tracker.check()
    own = server_data(configuration, dataset, clients)
    divide(configuration, dataset, _simulated(clients), own)
    configuration.exchange.check_asked(len(configuration.sampling.sample(keys.seed, 1, clients)))
    if keys.pretrain_examples:
        used = clients_positions(configuration, dataset, own, clients)
        split_off(dataset, keys.pretrain_examples, keys.pretrain_validation, used)
    model = configuration.words["model"]
    check_images(model, configuration.architecture, dataset.image_shape, keys.dataset)


def divide(
    configuration: Configuration, dataset: Dataset, federation: Federation, own: ServerData | None
) -> tuple[list[Positions | None], list[Positions | None] | None]:
    """Return each client's training and test examples, if they serve all who need them.

    Returns:
        The positions by partition id, None for a node with data of its own; and None in place of
        all test examples where no client has its own.

    Raises:
        ConfigurationError: The data cannot be split as configured, or somebody who needs some gets
            too few, or those of others, or such as a model does not take.
    """
    check_own_images(configuration, dataset, own, federation.size)
    if not all(federation.own_examples.values()):
        check_partition(configuration, dataset, own, federation.size)
    partition = split(configuration, dataset, federation, own)
    test_partition = own_test_positions(configuration, dataset, partition)
    check_held_back(configuration, partition, federation.own_examples)
    refuse_personal_models(configuration, federation.size, dataset.image_shape)
    return partition, test_partition


def _simulated(clients: int) -> Federation:
    numbers = range(clients)
    return Federation({number: number for number in numbers}, dict.fromkeys(numbers, 0))


def refuse_for_tables(configuration: Configuration, dataset: Dataset) -> None:
    """Refuse what is made for images, where the data are the rows of a table."""
    if not dataset.encoding:
        return
    keys, values = configuration.keys, configuration.values
    alone = {
        "augmentation": "none",
        "student-augmentation": "none",
        "image-size": 0,
        "image-channels": 0,
        "corruptions": "none",
        "ood-dataset": "",
    }
    problems = {
        key: repr(value) for key, value in alone.items() if values.get(key, value) not in (value, 0)
    }
    if keys.server_data not in ("", HELD_BACK):
        problems["server-data"] = f"'' or '{HELD_BACK}'"
    if configuration.architecture.convolutional:
        problems["model"] = "a network of dense layers, such as 'mlp'"
    if problems:
        raise ConfigurationError(
            f"dataset '{keys.dataset}' has rows of a table, and "
            + "; ".join(
                f"{key} is {values[key]!r}, which is for images; allowed: {allowed}"
                for key, allowed in problems.items()
            )
        )


def refuse_personal_models(
    configuration: Configuration, clients: int, image_shape: tuple[int, int, int]
) -> None:
    """Refuse personal models that do not fit the number of clients or the images."""
    personalization = configuration.personalization
    if isinstance(personalization, PersonalModel):
        for word in dict.fromkeys(personalization.assignment.words(clients)):
            if word:
                architecture = personal_architecture(configuration, word)
                check_images(word, architecture, image_shape, configuration.keys.dataset)


def client_sizes(configuration: Configuration, clients: int) -> tuple[int, ...]:
    """Return the number of training examples of each client of a simulation.

    Raises:
        ConfigurationError: The data cannot be split as configured.
        DataError: The data are not what their format promises.
    """
    keys = configuration.keys
    dataset = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
    own = server_data(configuration, dataset, clients)
    parts = split(configuration, dataset, _simulated(clients), own)
    return tuple(0 if part is None else len(part) for part in parts)


def check_held_back(
    configuration: Configuration,
    partition: Sequence[Positions | None],
    own_examples: Mapping[int, int],
) -> None:
    """Refuse a closing for which all clients together hold back too few examples.

    Args:
        partition: The examples of each client; None for nodes with data of their own.
        own_examples: How many these have, by partition id; 0 for other nodes.
    """
    share = configuration.held_back_share
    sizes = [own_examples[i] if part is None else len(part) for i, part in enumerate(partition)]
    held = sum(held_back_count(size, share) for size in sizes if size)
    for each in configuration.closing:
        if problem := each.held_back_problem(held):
            raise ConfigurationError(problem)


def check_own_images(
    configuration: Configuration, dataset: Dataset, own: ServerData | None, clients: int
) -> None:
    """Refuse images of the server's own that do not serve, or are the clients' or the test's."""
    parts = [part for part in configuration.components if isinstance(part, UsesServer)]
    for part in parts:
        part.check(own)
    needed = any(part.needs_server for part in parts)
    word = configuration.keys.server_data
    if own is None or word == HELD_BACK:
        return
    if configuration.server_network_decides:
        why = "the run would be evaluated on what it has learnt from, or has been picked by"
        what = f"test images of dataset {dataset.name}: {why}"
        check_apart(own, dataset.test_images, word, what)
    if needed:
        theirs = dataset.train_images[clients_positions(configuration, dataset, own, clients)]
        check_apart(own, theirs, word, "among those that the clients train on")


def refuse_attackers(configuration: Configuration, federation: Federation) -> None:
    """Refuse hostile clients on nodes that do not play any; the error names the nodes."""
    refusing = [
        f"partition {partition_id} (node {node})"
        for partition_id, node in federation.nodes.items()
        if configuration.attacks(partition_id) and partition_id not in federation.attackable
    ]
    if refusing:
        raise ConfigurationError(
            f"attack is '{configuration.attack.name}' with attackers = "
            f"{configuration.keys.attackers}, which {', '.join(refusing)} will not play: only "
            "simulated nodes do, and SuperNodes whose node configuration has allow-attack=true"
        )


def lost_states(
    configuration: Configuration, federation: Federation, checkpoint: Checkpoint | None, advice: str
) -> str:
    """Return what there is to say of clients whose state ends with Flower's run, or nothing.

    Args:
        checkpoint: Where the run stands; None: before its first round.
        advice: How to make the run again.

    Raises:
        ConfigurationError: The run is one to go on with, and such states are lost.
    """
    stateless = [str(p) for p in federation.nodes if p not in federation.stateful]
    keepers = [part.name for part in configuration.parts if part.client_state_name]
    if configuration.keys.optimizer_state == "keep":
        keepers.append("optimizer-state")
    if not keepers or not stateless:
        return ""
    what = f"clients keep a state from round to round ({', '.join(keepers)})"
    nodes = f"the SuperNodes of partitions {', '.join(stateless)} have no state-dir"
    if checkpoint and 0 < checkpoint.server_round < configuration.keys.rounds:
        raise ConfigurationError(
            f"{what} and {nodes}: what they kept has ended with the run that was interrupted, so "
            f"going on would not give its result\n{advice}"
        )
    return (
        f"{what} and {nodes}: this run cannot be resumed, and the client of a SuperNode that is "
        "restarted has lost it and fails from then on"
    )


def check_privacy(configuration: Configuration) -> None:
    """Refuse a run whose ε cannot be computed, or exceeds a budget in the first round."""
    keys = configuration.keys
    for mechanism in mechanisms(configuration, len(schedule(configuration.closing))):
        check_accountant(mechanism.multiplier_key)
        # The epochs of a round's clients are drawn where they differ; the account has each.
        expected = round(configuration.workload.expected_epochs(keys.local_epochs))
        releases = mechanism.releases(max(1, expected))
        if (sums := mechanism.epsilon(0)) > mechanism.budget:
            raise ConfigurationError(
                f"{mechanism.budget_key} is {mechanism.budget:g}, and a closing's sums alone have "
                f"ε = {sums:.4g} at δ = {mechanism.delta:g}; allowed: a greater "
                'closing-noise-multiplier, or closing="none"'
            )
        one = mechanism.epsilon(releases)
        if one > mechanism.budget:
            needed, of_all = (
                mechanism.multiplier_for(mechanism.budget, releases * rounds)
                for rounds in (1, keys.rounds)
            )
            raise ConfigurationError(
                f"{mechanism.budget_key} is {mechanism.budget:g}, and one round with "
                f"{mechanism.multiplier_key} {mechanism.multiplier:g} has ε = {one:.4g} at δ = "
                f"{mechanism.delta:g}; allowed: a {mechanism.multiplier_key} of {needed:.4g} for "
                f"one round, of {of_all:.4g} for {keys.rounds}"
            )


def check_no_moving_statistics(configuration: Configuration, manifest: Manifest) -> None:
    """Refuse a private run whose clients would send statistics of their data."""
    moving = [parameter.name for parameter in manifest.point if not parameter.trainable]
    if moving and says_nothing_measured(configuration):
        words = configuration.words
        raise ConfigurationError(
            f"outgoing is '{words['outgoing']}' and example-privacy '{words['example-privacy']}', "
            f"with noise, and the network of model '{words['model']}' has {len(moving)} parameters "
            f"that follow the data and not the gradient, the first '{moving[0]}'; allowed: a model "
            "without moving statistics"
        )


def method_warnings(configuration: Configuration) -> list[str]:
    """Return a warning of personal models that nobody evaluates, as the server has none of them."""
    personalization = configuration.personalization
    if not personalization.active or configuration.keys.evaluated_by == "clients":
        return []
    what = "alone is evaluated" if personalization.trains_meme else "is evaluated and not trained"
    return [
        f"personalization is '{personalization.name}' and evaluated-by is 'server': the clients' "
        f"personal models are not evaluated, and the global model {what}; "
        'evaluated-by="clients" has each client do so'
    ]


def data_warnings(configuration: Configuration, dataset: Dataset) -> list[str]:
    """Return warnings of a run's data and its sites, which its report has as well."""
    partition = configuration.partition
    warnings = [*said_of(dataset), *partition.said(dataset.train_columns, dataset.test_columns)]
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
