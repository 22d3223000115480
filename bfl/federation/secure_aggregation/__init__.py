"""Secure aggregation: a server learns the sum of its clients' vectors, and no vector.

- ``fixed_point``, ``value_range``, ``encoding``: statistics as whole numbers modulo 2⁶⁴.
- ``accuracy``: how far rounding can carry what is pooled.
- ``masks``, ``keys``, ``shares``, ``neighbours``: what the protocol is made of, each from a library
  of cryptography; nothing of that kind is written here.
- ``messages``: what is said.
- ``client``, ``server``: the two halves of the protocol.
- ``settings``, ``on_the_wire``: what is agreed on, and how it travels in Flower's messages.
- ``identity``: who signs keys.
- ``errors``: what can go wrong.
"""
