"""Secure aggregation: a server learns the sum of its clients' vectors, and no vector.

- ``client``, ``server``: the two halves of the protocol, and ``messages`` between them.
- ``masking``: statistics as whole numbers modulo 2⁶⁴; masks, neighbours and shares of secrets.
- ``accuracy``: the range of values that is agreed on, and how far rounding carries the pool.
- ``keys``: from a library of cryptography; nothing of that kind is written here.
"""
