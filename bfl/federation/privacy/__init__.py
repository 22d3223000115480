"""What differential privacy rests on: an update as one vector, its noise, and the accountant.

- ``difference``: an update's difference from what was received, as one vector and back.
- ``normals``: where standard normal numbers come from; the system's own randomness.
- ``accountant``: ε of so many releases.
- ``ledger``: which releases there have been.
"""
