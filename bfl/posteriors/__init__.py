"""Mean-field Gaussian posteriors over a network's parameters, as flat vectors.

- ``posterior``: the vectors (mean, variance, point) and their checks.
- ``manifest``: which network parameter lies where in the vectors.
- ``parametrization``: TensorFlow Probability's σ = ε + softplus(ρ) and its inverse.
- ``floor``: the least standard deviation of what is pooled.
- ``divergence``: Kullback-Leibler divergences between diagonal Gaussians.
"""

from bfl.posteriors.manifest import Manifest, Parameter
from bfl.posteriors.posterior import Posterior

__all__ = ["Manifest", "Parameter", "Posterior"]
