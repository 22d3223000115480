"""Masked exchange on the server, whole: refusals, messages, and the pool of clients' sums."""
