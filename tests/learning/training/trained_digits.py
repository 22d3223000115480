"""A small network and tasks of the digits, for what is tested of local training."""

import numpy as np
from one_layer import task_of
from small_network import SmallNetwork

from bfl.data.datasets import cached_dataset
from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import NormalPrior

SHAPE = (8, 8, 1)
BATCH = 32
INFERENCES = ("deterministic", "flipout", "mc-dropout", "reparameterization")


def network_of(inference, **settings):
    from bfl.learning.networks.network import build_network

    chosen = inferences.create(inference, settings)
    return build_network(SmallNetwork(), chosen, SHAPE, 10)


def trainer_of(inference, augmentation="none", optimizer="adam", **settings):
    from bfl.learning.training.trainer import local_trainer

    return local_trainer(
        network_of(inference, **settings),
        BATCH,
        augmentations.create(augmentation),
        optimizers.create(optimizer, settings),
    )


def digits():
    data = cached_dataset("digits", "")
    return data.train_images, data.train_labels


def make_task(received, examples, prior=(0.0, 10.0), *, rate=1e-3, labels=(1, 0), **changes):
    chosen = NormalPrior(*prior) if isinstance(prior, tuple) else prior
    plain = {"prior": chosen, "learning_rate": rate, "key_labels": labels, "keeps_optimizer": True}
    return task_of(received, examples=np.asarray(examples), **{"epochs": 1, **plain, **changes})


def record_order(monkeypatch):
    """Return a list that gets the order and the weights of each training."""
    from bfl.learning.training import trainer as module

    recorded, batches = [], module.batches

    def batches_and_record(*arguments):
        recorded.append(batches(*arguments))
        return recorded[-1]

    monkeypatch.setattr(module, "batches", batches_and_record)
    return recorded
