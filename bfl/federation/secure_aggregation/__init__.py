"""Secure aggregation: a server learns the sum of its clients' vectors, and no vector.

- ``client``, ``server``: the two halves of the protocol, and ``messages`` between them.
- ``masking``: statistics as whole numbers modulo 2⁶⁴, and the range that these hold; masks,
  neighbours and shares of secrets.
- ``keys``: from a library of cryptography; nothing of that kind is written here.
"""
