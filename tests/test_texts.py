"""Texts of others: as editors and systems save them."""

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bfl.configuration.sources import read_toml
from bfl.deployment.client_list import read_bound_nodes
from bfl.errors import BflError, ConfigurationError, DataError
from bfl.experiments.results.run_folder import Files, RunFolder
from bfl.experiments.studies.study import read_study
from bfl.federation.privacy import Ledger

TOML = '# é\ntitle = "é"\n[base]\nrounds = 3\n'
JSON = '{\n "scale": {\n  "é": 1\n }\n}\n'
CSV = "rule,acc\néa,0.5\nWS,1.5\n"
STUDY = """title = "T"
[[rows]]
label = { rule = "éa" }
[[rows]]
label = { rule = "WS" }
[[columns]]
metric = "accuracy"
published = "acc"
[published]
file = "table.csv"
"""


def published(path: Path) -> Any:
    study = path.with_name("study.toml")
    study.write_text(STUDY, "utf-8")
    table = read_study(study).published
    assert table is not None
    return table.lines


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "c.toml": (TOML, read_toml),
    "table.csv": (CSV, published),
    "metrics.json": (JSON, lambda path: Files(path.parent).read_json(path.name)),
}
SAVED: dict[str, Callable[[str], bytes]] = {
    "byte-order mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "old Mac": lambda text: text.replace("\n", "\r").encode(),
}


@pytest.mark.parametrize("file", READERS)
def test_what_another_editor_has_saved_reads_the_same(file: str, tmp_path: Path) -> None:
    text, read = READERS[file]
    path = tmp_path / file
    path.write_text(text, encoding="utf-8")
    expected = read(path)
    for saved in SAVED.values():
        path.write_bytes(saved(text))
        assert read(path) == expected
    # With other bytes in the line of the letter, it is named, whatever ends lines.
    line = text[: text.index("é")].count("\n") + 1
    for ending in ("\n", "\r\n", "\r"):
        for wrong in (text.encode("latin-1"), text.replace("é", "\0").encode()):
            path.write_bytes(wrong.replace(b"\n", ending.encode()))
            with pytest.raises((ConfigurationError, DataError)) as caught:
                read(path)
            assert str(path) in str(caught.value)
            assert f"line {line}:" in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xe9", b"\0", codecs.BOM_UTF16_LE + b"a", b"[" * 100_000, b"\n\n{", b"9" * 5000],
    ids=["empty", "Latin-1", "NUL", "half a character", "nested", "cut", "a huge number"],
)
def test_what_is_none_is_refused_and_named(content: bytes, tmp_path: Path) -> None:
    readers: dict[str, Callable[[Path], Any]] = {
        "c.toml": read_toml,
        "metrics.json": lambda path: Files(path.parent).read_json(path.name),
        "bound.json": read_bound_nodes,
        "ledger": Ledger,
        "table.csv": published,
        "rounds.jsonl": lambda path: RunFolder(path.parent).rounds(),
    }
    for name, read in readers.items():
        path = tmp_path / name
        path.write_bytes(content + b"\n{}\n" if name == "rounds.jsonl" else content)
        if name in ("c.toml", "ledger") and not content:
            continue  # says nothing, and may
        with pytest.raises(BflError, match=name):
            read(path)
