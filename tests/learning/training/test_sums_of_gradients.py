"""A gradient of many parts is a sum of two again and again: the same bits in every process."""

from collections import Counter
from typing import Any

import pytest
from one_layer import trainer_of

from bfl.learning.objectives import objectives
from bfl.learning.training.trainer import LocalTrainer


def numbers_added_at_once(trainer: LocalTrainer) -> Counter[int]:
    """Return how many operations of a trainer's steps add up how many tensors."""
    from bfl.keras import tf

    size = (1, trainer.batch_size)
    images, labels = tf.zeros((1, *trainer.network.image_shape), tf.uint8), tf.zeros(1, tf.int64)
    batches = tf.zeros(size, tf.int32), tf.ones(size)

    def steps() -> Any:
        key = tf.zeros(2, tf.int32)
        return trainer._run(images, labels, *batches, key, tf.constant(1.0), tf.constant(0.1))

    functions = tf.function(steps).get_concrete_function().graph.as_graph_def().library.function
    nodes = (node for function in functions for node in function.node_def)
    return Counter(node.attr["N"].i for node in nodes if node.op == "AddN")


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize("inference", ["flipout", "reparameterization", "deterministic"])
@pytest.mark.parametrize("further", [0, 1, 3])
def test_no_more_than_two_tensors_are_added_at_once(inference: str, further: int) -> None:
    terms = [objectives.create("elbo")]
    for number in range(further):  # unlike ones, as terms of a user's own would be
        terms.append(objectives.create("proximal", {"proximal-mu": 0.1 + number}))
    added = numbers_added_at_once(trainer_of(inference, objective=tuple(terms)))
    assert set(added) <= {2}
    assert bool(added) or not further
