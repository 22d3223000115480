"""What ``flwr run`` ships: every module of the product, whatever it is called."""

import io
import zipfile
from pathlib import Path

from flwr.cli.build import build_fab_from_disk

ROOT = Path(__file__).resolve().parent.parent.parent


def test_every_module_is_in_the_bundle() -> None:
    """Flower leaves out files whose names begin or end as those of tests do."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(ROOT))) as bundle:
        shipped = set(bundle.namelist())
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("bfl", "strategies", "clients")
        for path in (ROOT / package).rglob("*.py")
    }
    assert len(modules) > 100
    assert {"LICENSE", "README.md"} < shipped
    assert len(shipped) < 1000, "the most that Flower's Hub takes"
    assert not modules - shipped
