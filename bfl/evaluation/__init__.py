"""Evaluation of a posterior: predictions, metrics, uncertainties, retention curves."""
