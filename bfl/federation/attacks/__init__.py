"""Attacks: what hostile clients send in place of what they have learned; one file each.

They exist to be measured against: ``attack`` and ``attackers`` in a configuration make the first
few clients hostile.
"""

from bfl.federation.attacks.base import Attack, attacks

__all__ = ["Attack", "attacks"]
