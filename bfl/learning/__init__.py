"""What a client, or the server, does with data: networks, priors, optimizers, training."""
