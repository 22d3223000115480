"""Pre-training of the global model before the first round, on data that the server has.

Source: Fischer et al. (2024), section 3.6: "the server pre-trains the global model on 10% of the
CIFAR-10 dataset for a maximum of 100 local epochs. To avoid overfitting [...] we employ an early
stopping strategy which monitors validation accuracy with a patience of 10 epochs."

The server has the images, and the node of partition 0 trains on them, as a client does, with the
same bits: the server's process has no network that trains. In a deployment that node therefore has
to hold the run's data set.

Where the paper is silent: a tenth of these images validates (``pretrain-validation``), with the
same mixture of classes; clients hold them as well; the posterior of the best epoch is kept; the
prior is fixed, as with the epoch before in its place the data would count once more every epoch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.configuration import Configuration
from bfl.configuration.component_slots import SLOTS
from bfl.errors import ConfigurationError, NotFiniteError
from bfl.experiments.results.run_folder import run_key
from bfl.federation.wire import TRAIN, TrainTask, posterior_to_arrays, train_content
from bfl.learning.pretraining import split_off, stop_early
from bfl.posteriors import Posterior
from strategies.updates import read_update

if TYPE_CHECKING:
    from strategies.application.rounds import FederationRun

OF_THE_METHOD = ("temperature", "local_lr_decay")
"""Keys that are a method's, as its parts are: runs that differ in them begin alike."""


def configuration_of_pretraining(configuration: Configuration) -> Configuration:
    """Return what the node that pre-trains is sent of a run's configuration.

    The parts are those of the network and of a step on it (``ComponentSlot.pretrains``), at
    one learning rate. All others of the clients, and the temperature, are the defaults.
    """
    keys = configuration.keys
    read = {**configuration.values, "lr-decay": 0.0}
    words, parts = dict(configuration.words), dict[str, Any]()
    for kind in SLOTS:
        if not (kind.pretrains or kind.server_only):
            picked = kind.pick(kind.default, read)
            words[kind.key] = kind.word(picked, kind.default)
            parts[kind.attribute] = picked if kind.chain else picked[0]
    of_an_epoch = {"local_epochs": 1, "optimizer_state": "keep", "calibration_share": 0.0}
    defaults = {name: type(keys).model_fields[name].default for name in OF_THE_METHOD}
    alone = keys.model_copy(update={**of_an_epoch, **defaults})
    return replace(configuration, keys=alone, words=words, **parts)


def pretrain(run: FederationRun, initial: Posterior) -> Posterior:
    """Train a posterior on the first node, until it stops getting better; return the best epoch's.

    To the node it is a client like any other, with a partition id beyond those of the federation
    and an epoch for a round: its bits depend on the seed alone, and its optimizer goes on.

    Raises:
        ConfigurationError: The node has data of its own, or there are not enough images.
        RunError: The node has failed, also when asked again, or what it sends is refused.
    """
    federation, evaluator, dataset = run.federation, run.evaluator, run.data.dataset
    keys, partition_id = run.configuration.keys, run.federation.size
    if federation.own_examples[0]:
        raise ConfigurationError(
            "pretrain-examples is set, and the SuperNode of partition 0 has data of its own: "
            "pre-training needs one that holds the run's data set"
        )
    share, held_out = keys.pretrain_examples, keys.pretrain_validation
    train, validation = split_off(dataset, share, held_out, run.data.used)
    configuration = configuration_of_pretraining(run.configuration)
    text = json.dumps(configuration.for_clients(paths=federation.reads_run_paths(0)))
    posterior = best = initial
    accuracies: list[float] = []
    for epoch in range(1, keys.pretrain_epochs + 1):
        task = TrainTask(
            server_round=epoch,
            partition_id=partition_id,
            configuration=text,
            num_classes=dataset.num_classes,
            examples=train,
            run_folder=run.folder if federation.simulated else "",
            pooled_round=epoch - 1,
            run_key=run_key(run.results.path),
        )
        content = train_content(posterior_to_arrays(posterior), task)
        expected: dict[str, Any] = {"manifest": evaluator.manifest, "num_examples": len(train)}
        read = partial(read_update, partition_id=partition_id, sent=posterior, **expected)
        name = f"pre-training, epoch {epoch}"
        posterior = federation.ask(run.grid, TRAIN, {0: content}, read, keys, name)[0].posterior
        try:
            accuracies.append(evaluator.train_accuracy(posterior, validation, epoch))
        except NotFiniteError:
            accuracies.append(0.0)  # of logits that are not finite none is correct
        accuracy = accuracies[-1]
        run.progress.say(f"{name}: validation accuracy {accuracy:.4f}")
        if int(np.argmax(accuracies)) == epoch - 1:
            best = posterior
        if stop_early(accuracies, keys.pretrain_patience):
            break
    return best
