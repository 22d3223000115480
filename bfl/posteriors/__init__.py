"""Mean-field Gaussian posteriors over a network's parameters, as flat vectors.

- ``posterior``: the vectors (mean, variance, point) and their checks.
- ``manifest``: which network parameter lies where in the vectors.
- ``divergence``: Kullback-Leibler divergences between diagonal Gaussians.
- ``spread``: whether training has told standard deviations apart.
"""

from bfl.posteriors.manifest import Manifest, Parameter
from bfl.posteriors.posterior import Posterior

__all__ = ["Manifest", "Parameter", "Posterior"]
