"""Regression: predictions that are mixtures of Gaussians, and metrics of them."""
