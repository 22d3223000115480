"""TensorFlow's banner: the same lines in every process, which no setting of its own turns off."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_BANNER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|"
    rb"I0000 .*(oneDNN custom operations|Could not find cuda drivers|cpu_feature_guard)|"
    rb"E0000 .*failed call to cuInit|"
    rb"To enable the following instructions"
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Leave TensorFlow's banner out of what is written to standard error inside.

    The lines come from C++ and pass Python's logging by, so the file descriptor itself is turned
    aside for a moment. All other lines are written as soon as the block ends, however it ends.
    """
    try:
        descriptor = sys.__stderr__.fileno() if sys.__stderr__ else 2
        kept = os.dup(descriptor)
    except (OSError, ValueError):  # no standard error to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            aside.seek(0)
            said = [line for line in aside.readlines() if not _BANNER.match(line)]
            os.write(descriptor, b"".join(said))
