"""Steps of optimizers that take the gradients of the examples' loss and of the rest apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bfl.keras import tf
from bfl.learning.networks.network import Network
from bfl.learning.objectives import SoftLabels, Step
from bfl.learning.optimizers import Optimizer
from bfl.learning.training.learner import Batch, Learner, Pass


class SeparateLearner(Learner):
    """A learner whose optimizer takes the gradients of the examples' loss and of the rest apart."""

    def learn(
        self,
        passed: Pass,
        batch: Batch,
        number: Any,
        rate: Any,
        soft_labels: SoftLabels | None = None,
    ) -> Any:
        """Make a step from a pass over a batch; see ``Learner.learn``."""
        with passed.tape:
            step = Step(self.network, passed.logits, batch.labels, batch.weights, soft_labels)
            summed, _ = self._values(step, batch.count)
            mean = summed / tf.reduce_sum(batch.weights)
        gradients = self._gradient(passed.tape, mean)
        rests, shared = self.shared_gradients(batch.count)
        optimized = self.optimized
        optimized.optimizer.step(
            [
                replace(trained, rest=rest, examples=batch.count / self._temperature)
                for trained, rest in zip(optimized.trained, rests, strict=True)
            ],
            gradients,
            optimized.steps_before + number,
            rate,
        )
        return tf.concat([[step.negative_log_likelihood, summed], shared], axis=0)


def learner_of(network: Network, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Learner:
    """Return the learner that an optimizer asks for; see ``Learner`` for the arguments."""
    kind = SeparateLearner if optimizer.separate_gradients else Learner
    return kind(network, optimizer, *args, **kwargs)
