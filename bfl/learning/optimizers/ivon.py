"""Improved variational online Newton (IVON): the steps of means and of precisions."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from bfl.learning.optimizers import Optimizer, Tensors, Trained, optimizers

HARDLY_MOVED = 0.3  # (1 − β₂) · steps below which a Hessian's estimate is nearly its first value


@optimizers.register("ivon", aliases=("improved-variational-online-newton",))
class ImprovedVariationalOnlineNewton(Optimizer):
    """Newton steps of a Gaussian's mean, with an estimate of the Hessian as its precision.

    The posterior is N(m, 1/(λ(h + δ))), where λ counts the likelihood's examples and λδ is the
    prior's precision. With θ = m + ε/√(λ(h + δ)), one draw for a batch, and ĝ the gradient of its
    mean loss at θ,

        ĥ = ĝ (θ − m) λ (h + δ)
        g ← β₁ g + (1 − β₁) ĝ
        h ← β₂ h + (1 − β₂) ĥ + ½ (1 − β₂)² (h − ĥ)² / (h + δ)
        m ← m − α (g / (1 − β₁ᵗ) + δ (m − c)) / max(h + δ, α δ),  α = η (h₀ + δ),

    with c the prior's mean. As in the authors' code the rate η is in units of h₀ + δ = 1/(λσ₀²), σ₀
    being ``initial-scale``, so the Newton step's share α is greater for fewer examples λ. The
    maximum is ours: where α δ > h + δ, as with the cavity of a client of few examples, the authors'
    step would leap over the prior's mean and diverge; this one goes there and no further.

    Training holds u = (h + δ)/(h₀ + δ). Its gradient has ĥ, and that of KL[q ‖ p] has δ − h − δ, so
    any prior will do, a cavity as well, and a proximal term takes part. With β₂ = exp(−1/S) and S
    the steps that the client makes in all rounds, a share of 1/e of h₀ is left at the end.

    Point values, such as normalisation's scale and offset, step as if h had stayed h₀.

    Source: Shen et al. (2024), "Variational learning is effective for large deep networks",
    Algorithm 1; λ = N/T with ``temperature`` = T.
    """

    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    separate_gradients: ClassVar[bool] = True

    BETA1: ClassVar[float] = 0.9

    always_has: ClassVar[frozenset[str]] = frozenset({"newton-steps", "separate-gradients"})
    always_requires: ClassVar[frozenset[str]] = frozenset(
        {"held-precisions", "evidence-lower-bound"}
    )

    hessian_decay: float = Field(0.9995, ge=0.0, le=1.0)
    """β₂, the share of the Hessian's estimate that a step keeps; 0: exp(-1/S), S being the steps
    that a client makes in the whole run"""

    def depends_on_rounds(self) -> bool:
        """Return whether β₂ follows from the number of steps of the run."""
        return not self.hessian_decay

    def warnings(self, run_steps: int) -> list[str]:
        """Return a warning if so few steps hardly move h."""
        moved = (1.0 - self.hessian_decay) * run_steps
        if not self.hessian_decay or moved >= HARDLY_MOVED:
            return []
        return [
            f"hessian-decay is {self.hessian_decay:g}, and a client makes at most {run_steps} "
            f"steps: (1 - β₂) times the steps is {moved:.2g}, so that variances stay as they "
            "begin; a closing round measures what the model does not know all the same"
        ]

    def step(self, variables: Trained, gradients: Tensors, steps_before: Any, rate: Any) -> None:
        """Change precisions and then means and point values; see ``Optimizer.step``."""
        from bfl.keras import tf

        taken = list(zip(variables, gradients, strict=True))
        share = 1.0 - self.hessian_decay
        if not self.hessian_decay:
            share = -tf.math.expm1(-1.0 / variables[0].run_steps)
        priors = {}  # δ / (h₀ + δ), by the variable of u
        for trained, gradient in taken:
            if trained.scale:
                held = tf.convert_to_tensor(trained.variable)
                # h: λ (ĥ − h) in units of λ (h₀ + δ); likewise in nats, not per example.
                change = -2.0 * held * (held * (trained.examples * (gradient + trained.rest)))
                second = 0.5 * share * share * change * (change / held)
                priors[id(trained.variable)] = held - 2.0 * held * held * (
                    trained.examples * trained.rest
                )
                trained.variable.assign(held + share * change + second)
        debias = 1.0 - self.BETA1 ** tf.cast(steps_before + 1, tf.float32)
        for trained, gradient in taken:
            if not trained.scale:
                (momentum,) = trained.slots
                momentum.assign(self.BETA1 * momentum + (1.0 - self.BETA1) * gradient)  # g
                along = momentum / debias + trained.rest  # g / (1 − β₁ᵗ) + δ (m − c)
                if trained.untransformed_scale is not None:
                    newton = rate / (trained.examples * trained.initial_scale**2)  # α
                    prior = priors[id(trained.untransformed_scale)]
                    along /= tf.maximum(trained.untransformed_scale, newton * prior)
                trained.variable.assign_sub(rate * along)  # m
