"""Partitions of the training data over the clients, picked by the key ``partition``."""
