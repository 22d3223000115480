"""How a posterior is judged: predictions, metrics, uncertainties and their retention curves."""
