"""Mean-field Gaussian posteriors over a network's parameters, as flat vectors."""

from bfl.posteriors.manifest import Manifest, Parameter
from bfl.posteriors.posterior import Posterior

__all__ = ["Manifest", "Parameter", "Posterior"]
