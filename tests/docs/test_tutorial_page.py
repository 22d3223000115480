"""docs/tutorial.md runs as it stands, and shows what its commands and snippets print."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tutorial_page import PAGE, masked, page_as_run

DOING = re.compile(r"\[ NUMBER s\] ")


@pytest.mark.slow
@pytest.mark.long
def test_the_page_shows_what_it_gives(tmp_path: Path) -> None:
    shown = masked(text := PAGE.read_text(encoding="utf-8"))
    printed = masked(page_as_run(text, tmp_path))
    # A slow machine also says what it is doing, where three seconds would be silent.
    assert [line for line in printed if line in shown or not DOING.match(line)] == shown
    assert (tmp_path / "moved" / "posterior.npz").exists()


def test_another_word_or_whole_number_is_a_difference() -> None:
    line = "[  3.1 s] round 1/3  accuracy 0.1450  (2.1 s)"
    assert masked(line) == masked("[ 13.9 s] round 1/3  accuracy 0.2  (0.1 s)")
    assert masked(line) != masked(line.replace("1/3", "2/3"))
    assert masked(line) != masked(line.replace("accuracy", "NLL"))
