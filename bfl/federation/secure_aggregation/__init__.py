"""Secure aggregation: a server learns the sum of its clients' vectors, and no vector.

- ``masking``: statistics as whole numbers modulo 2⁶⁴; masks, neighbours and shares of secrets.
- ``accuracy``: how far rounding can carry what is pooled.
- ``keys``: from a library of cryptography; nothing of that kind is written here.
- ``messages``: what is said.
- ``client``, ``server``: the two halves of the protocol.
- ``on_the_wire``: what is agreed on, and how it travels in Flower's messages.
"""
