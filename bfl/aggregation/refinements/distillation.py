"""Distillation of an ensemble into the pooled model: FedBE and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationInfo, field_validator

from bfl.aggregation.ensemble import LEFT_OUT, EnsembleMembers
from bfl.aggregation.refinements import AFTER, BEFORE, Refined, Refinement, refinements
from bfl.aggregation.server import DistillationTask, RoundContext, labelled_images
from bfl.errors import ConfigurationError

if TYPE_CHECKING:
    from bfl.data.datasets.server_data import ServerData


@dataclass(frozen=True, eq=False)
class DistillationPlan:
    """Plan by which a student is trained.

    Attributes:
        rates: (S,) the rate η of each step.
        collected: (S,) whether the model after a step takes part in the average; if none does, the
            student is the last model.
        weight_decay: Multiple of the weights that is added to their gradient.
        loss_scale: Factor of the mean cross-entropy per image.
    """

    batch_size: int
    epochs: int
    rates: npt.NDArray[np.float32]
    collected: npt.NDArray[np.bool_]
    weight_decay: float
    loss_scale: float = 1.0

    def segments(self) -> list[tuple[slice, bool]]:
        """Return the steps in runs that end where a model is collected, or at the end."""
        ends = [int(step) + 1 for step in np.flatnonzero(self.collected)]
        steps = len(self.rates)
        cuts = [*ends, steps] if not ends or ends[-1] < steps else ends
        starts = [0, *cuts[:-1]]
        return [
            (slice(start, end), bool(self.collected[end - 1]))
            for start, end in zip(starts, cuts, strict=True)
        ]


def cyclical_rates(
    steps: int, highest: float, lowest: float, cycle: int
) -> npt.NDArray[np.float32]:
    """Return rates (S,) that fall in a straight line in each cycle and jump back.

    η_i = (1 − t_i) highest + t_i lowest with t_i = ((i − 1) mod c + 1) / c for i = 1 ... S.

    Source: Izmailov et al. (2018), "Averaging weights leads to wider optima and better
    generalization", section 3.2.
    """
    place = (np.arange(steps) % cycle + 1) / cycle
    return np.asarray((1 - place) * highest + place * lowest, np.float32)


def swa_steps(steps: int, start: float, cycle: int) -> npt.NDArray[np.bool_]:
    """Return after which steps (S,) models are collected: at ends of cycles after a start."""
    number = np.arange(1, steps + 1)
    first = round(start * steps) if start < 1 else start
    return np.asarray((number % cycle == 0) & (number > first))


Array = npt.NDArray[np.float64]


@refinements.register("distillation")
class Distillation(EnsembleMembers, Refinement):
    """A student that begins as the pooled model and learns the mean predictions of an ensemble.

    The ensemble predicts the server's own images, without augmentation; its mean probabilities are
    sharpened, p_c² / Σ p², and are the soft labels of a cross-entropy that the student makes small
    by steps of a momentum of 0.9 on augmented images (``student-augmentation``). With
    ``distillation-optimizer`` = "swa" the rate is cyclical and the models at the ends of cycles are
    averaged; with "sgd" the student is the last model.

    Of variational clients, means and point values learn, under the network's own draws; the
    variances stay those of the pool, since a cross-entropy alone would take them to 0.

    Chosen where the paper is silent: no weight decay; a rate for "sgd", that of the authors' code;
    the step after which models are collected as a share of all steps, as 250 of its 1,580; an
    average's moving statistics made anew, as Izmailov et al. do it.

    Source: Chen and Chao (2021), FedBE, section 4, Algorithm 1, section 5.1; Izmailov et al. (2018)
    for the averaging.
    """

    needs_server: ClassVar[bool] = True

    distillation_targets: Literal["ensemble", "labels"] = "ensemble"
    """what a student learns on the server: the ensemble's predictions, or the images' own labels
    (server-labels)"""
    distillation_epochs: int = Field(20, ge=1)
    """epochs of a student on the server"""
    distillation_batch_size: int = Field(128, ge=2)
    """images in a student's step"""
    distillation_optimizer: Literal["swa", "sgd"] = "swa"
    """a student's steps: with averaged models, or without"""
    distillation_learning_rate: float = Field(1e-3, gt=0.0, le=10.0)
    """rate of a student's steps; under swa the highest"""
    distillation_weight_decay: float = Field(0.0, ge=0.0, le=1.0)
    """weight decay of a student"""
    distillation_loss: Literal["image", "image-and-class"] = "image"
    """what a student's loss is a mean over: images, or images and classes, as in the authors' code,
    with a gradient as much smaller"""
    swa_lowest_rate: float = Field(
        4e-4,
        gt=0.0,
        le=10.0,
        validate_default=True,  # the highest is one that is given, or not
        description="rate at the end of a cycle of swa",
    )
    swa_cycle: int = Field(25, ge=1)
    """steps in a cycle of swa"""
    swa_start: float = Field(0.1582, ge=0.0)
    """step after which swa collects models: below 1 a share of all, from 1 a number"""

    @field_validator("swa_lowest_rate")
    @classmethod
    def _at_most_the_highest(cls, lowest: float, info: ValidationInfo) -> float:
        highest = info.data.get("distillation_learning_rate", lowest)
        if info.data.get("distillation_optimizer") == "swa" and lowest > highest:
            raise ValueError(f"at most distillation-learning-rate, {highest:g}")
        return lowest

    @property
    def needs_models(self) -> bool:
        """True if it has teachers: where labels are learnt, clients are asked for nothing."""
        return self.distillation_targets != "labels"

    def requires(self) -> frozenset[str]:
        """Return that the server has images, and labels if they are what is learnt."""
        if self.distillation_targets == "labels":
            # There is no ensemble, whose members would need something.
            return super(EnsembleMembers, self).requires() | {"server-labels"}
        return super().requires()

    def check(self, data: ServerData | None) -> None:
        """Raise a ConfigurationError if there are no images, no labels, or nothing to average."""
        if data is None:
            raise ConfigurationError(
                "refinement 'distillation' needs images of the server's own; set server-data"
            )
        if self.distillation_targets == "labels" and data.labels is None:
            raise ConfigurationError(
                "distillation-targets is 'labels', and the server's images have none"
            )
        self.plan(len(data.images), classes=1)

    def plan(self, images: int, classes: int) -> DistillationPlan:
        """Return the steps of a student on so many images; ConfigurationError: none to average."""
        steps = self.distillation_epochs * -(-images // self.distillation_batch_size)
        highest, averaged = self.distillation_learning_rate, self.distillation_optimizer == "swa"
        rates = np.full(steps, highest, np.float32)
        collected = np.zeros(steps, bool)
        if averaged:
            rates = cyclical_rates(steps, highest, self.swa_lowest_rate, self.swa_cycle)
            collected = swa_steps(steps, self.swa_start, self.swa_cycle)
            if not collected.any():
                raise ConfigurationError(
                    f"distillation-optimizer is 'swa' with swa-start = {self.swa_start:g} and "
                    f"swa-cycle = {self.swa_cycle}, and a student makes {steps} steps on {images} "
                    "images: no model would be collected; allowed: an earlier start, shorter "
                    "cycles, more epochs (distillation-epochs), or 'sgd'"
                )
        return DistillationPlan(
            batch_size=self.distillation_batch_size,
            epochs=self.distillation_epochs,
            rates=rates,
            collected=collected,
            weight_decay=self.distillation_weight_decay,
            loss_scale=1.0 if self.distillation_loss == "image" else 1.0 / classes,
        )

    def refine(self, context: RoundContext) -> Refined:
        """Return the student, with the cross-entropies to its targets before and after."""
        server, number = context.own_server, context.server_round
        left_out = 0
        if self.distillation_targets == "labels":
            _, labels = labelled_images(server.data)
            targets = np.eye(server.classes)[labels]
        else:
            members = self.members(context.models, context.sampler, context.seed, number)
            numbers = count()  # of the members, one of which is in memory at a time
            taken = (member for member, _ in zip(members, numbers, strict=False))
            predictions = server.predict_ensemble(taken, labels=("ensemble", number))
            targets = sharpen(predictions.mean_probability)
            left_out = next(numbers) - predictions.samples
        distilled = server.distil(
            DistillationTask(
                start=context.pooled,
                targets=targets.astype(np.float32),
                plan=self.plan(*targets.shape),
                seed=context.seed,
                labels=("distillation", number),
            )
        )
        metrics = {
            BEFORE: distilled.before,
            AFTER: distilled.after,
            "distillation-models": float(distilled.collected),
        }
        if left_out:
            metrics[f"distillation-{LEFT_OUT}"] = float(left_out)
        return Refined(distilled.posterior, metrics)


def sharpen(probability: Array) -> Array:
    """Return p_c² / Σ_c p_c² of each row of (N, C) probabilities.

    Source: Chen and Chao (2021), FedBE, section 5.1.

    Example:
        >>> sharpen(np.array([[0.2, 0.8]])).round(4).tolist()
        [[0.0588, 0.9412]]
    """
    # The greatest is 1: no power underflows all of a row.
    raised = (probability / probability.max(axis=1, keepdims=True)) ** 2.0
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
