"""State that outlives a round: snapshots of named arrays, of the server and of clients alike."""

from bfl.federation.state.snapshots import Arrays, Snapshots

__all__ = ["Arrays", "Snapshots"]
