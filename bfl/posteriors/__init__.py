"""Mean-field Gaussian posteriors over a network's parameters, as flat vectors."""

from bfl.posteriors.posterior import Manifest, Parameter, Posterior

__all__ = ["Manifest", "Parameter", "Posterior"]
