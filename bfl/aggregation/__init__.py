"""How clients' posteriors become one: pooling rules, weightings, defences, server optimizers."""
