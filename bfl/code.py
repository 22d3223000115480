"""A digest of the code that runs, so that a server and clients on different code are found out."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("bfl", "clients", "strategies")


@cache
def code_digest() -> str:
    """Return the SHA-256 of all modules of this project's packages, as this process finds them.

    Flower's Ray actors import from wherever the engine was started, which need not be the code
    that the server runs; the server compares digests before the first round.
    """
    sha = hashlib.sha256()
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            root = Path(folder)
            for path in sorted(root.rglob("*.py")):
                sha.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                sha.update(path.read_bytes())
    return sha.hexdigest()
