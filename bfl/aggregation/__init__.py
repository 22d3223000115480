"""Pooling of clients' posteriors: rules, weightings, defences, server optimizers."""
