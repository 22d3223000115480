"""Learning from data, on a client or the server: networks, priors, optimizers, training."""
