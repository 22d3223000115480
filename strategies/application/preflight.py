"""Refusals of a run before an engine is started, and what it warns of its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bfl.aggregation.pooling import check_rule
from bfl.configuration import Configuration
from bfl.data.datasets import cached_dataset
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.run.network import check_models, given_posterior
from bfl.experiments.run.resume import check_output
from bfl.experiments.run.simulation import check_table
from bfl.learning.pretraining import split_off
from strategies.application.data import divide, warnings_of_data
from strategies.federation import Federation
from strategies.privacy import check_privacy


def check_before_start(
    configuration: Configuration, clients: int, *, own_data: bool = False
) -> list[str]:
    """Refuse whatever can be known to be wrong before an engine is started, all of it at once.

    Args:
        own_data: Whether clients are nodes, which alone know what they have: nothing is divided.

    Returns:
        What the run warns of its data.

    Raises:
        ConfigurationError: Naming the key.
        DataError: The data are not what their format promises.
    """
    keys, refused = configuration.keys, list[ConfigurationError | DataError]()
    warnings: list[str] = []

    @contextmanager
    def collect_refusals() -> Iterator[None]:
        try:
            yield
        except (ConfigurationError, DataError) as error:
            refused.append(error)

    with collect_refusals():
        # Of a run that was begun nodes have told some keys.
        if not own_data or (keys.name and not keys.resume):
            check_output(configuration)
        if configuration.inference.gaussian:
            check_rule(configuration.pooling)
        if keys.initial_posterior and not keys.resume:
            given_posterior(keys.initial_posterior)
    with collect_refusals():
        check_privacy(configuration)
    with collect_refusals():
        whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
        with collect_refusals():
            if not own_data:
                configuration.partition.names(whole.train_columns)
        check_table(configuration, whole)
        check_models(configuration, whole, clients)
        warnings = warnings_of_data(configuration, whole)
        if not own_data:
            nodes = {number: number for number in range(clients)}
            data = divide(configuration, whole, Federation(nodes, dict.fromkeys(nodes, 0)))
            selected = configuration.sampling.sample(keys.seed, 1, clients)
            configuration.exchange.check_selected(len(selected))
            if keys.pretrain_examples:
                split_off(data.dataset, keys.pretrain_examples, keys.pretrain_validation, data.used)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise ConfigurationError("\n".join(dict.fromkeys(map(str, refused))))
    return warnings
