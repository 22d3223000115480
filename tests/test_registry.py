import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from bfl.aggregation.pooling.base import PoolingRule, pooling_rules
from bfl.configuration.component_slots import OF_EVERY_RUN, REGISTRIES
from bfl.data.datasets import dataset_sources
from bfl.registry import Component, Registry


class Shape(Component):
    """A shape."""


def make_registry() -> Registry[Shape]:
    registry: Registry[Shape] = Registry("shape", "tests_have_no_package")
    registry._discovered = True
    return registry


def test_a_component_is_found_by_name_alias_case_and_underscores() -> None:
    registry = make_registry()

    @registry.register("regular-polygon", aliases=("ngon",))
    class Polygon(Shape):
        """A polygon."""

        side_count: int = Field(3, ge=3, description="sides")

    for spelling in ("regular-polygon", "ngon", "NGON", " Regular_Polygon "):
        assert registry.get(spelling) is Polygon
    assert Polygon.setting_keys() == ("side-count",)
    assert registry.create("ngon", {"side-count": 5, "colour": "red"}).side_count == 5  # type: ignore[attr-defined]
    assert Polygon.summary() == "A polygon."


def test_what_is_registered_twice_is_refused_and_what_is_withdrawn_is_not() -> None:
    registry = make_registry()
    cls = registry.register("my_rule", aliases=("MyAlias", "my-rule"))(type("A", (Shape,), {}))
    for spelling in ("my_rule", "My-Rule", " MyAlias "):
        assert registry.get(spelling) is cls
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("other", aliases=("MYALIAS",))(type("B", (Shape,), {}))
    registry.withdraw(lambda component: component is cls)
    assert registry.classes() == ()
    assert "myalias" not in registry
    registry.register("my-rule")(type("B", (Shape,), {}))


PACKAGE = """
from bfl.registry import Component, Registry

parts = Registry("part", {name!r})
"""

PART = """
from bfl.registry import Component
from {package} import parts
{before}
@parts.register("{name}")
class TwoSidedPart(Component):
    '''A part.'''
"""


class Package:
    """A package of parts, ``good`` and one more, whose file says more after its registration."""

    def __init__(self, folder: Path, more: str) -> None:
        self.name = f"parts_of_{folder.name.replace('-', '_')}"
        self.folder = folder / self.name
        self.folder.mkdir()
        (self.folder / "__init__.py").write_text(PACKAGE.format(name=self.name), encoding="utf-8")
        self.write("another", more)
        self.write("good", "")

    def write(self, name: str, more: str, before: str = "") -> None:
        text = PART.format(package=self.name, name=name, before=before) + more
        (self.folder / f"{name}.py").write_text(text, encoding="utf-8")

    @property
    def parts(self) -> Registry[Any]:
        found: Registry[Any] = importlib.import_module(self.name).parts
        return found


@pytest.fixture(autouse=True)
def no_packages_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before, known = set(sys.modules), list(Registry.known)
    yield
    for module in [m for m in sys.modules if m.startswith("parts_of_") and m not in before]:
        del sys.modules[module]
    Registry.known[:] = known


def test_what_cannot_be_imported_is_told_at_every_look_up_until_it_is_mended(
    tmp_path: Path,
) -> None:
    package = Package(tmp_path, "raise ImportError('a typo')\n")
    for ask in (package.parts.classes, package.parts.names, lambda: package.parts.get("good")):
        for _ in range(2):
            with pytest.raises(ImportError, match="a typo"):
                ask()
    package.write("another", "")
    assert package.parts.names() == ("another", "good")
    assert package.parts.get("another") is package.parts.classes()[0]


@pytest.mark.parametrize("registry", [*REGISTRIES, dataset_sources], ids=lambda r: r.kind)
def test_every_component_explains_itself(registry: Registry) -> None:  # type: ignore[type-arg]
    assert registry.names()
    for component in registry.classes():
        assert component.summary(), component
        assert component.__module__.startswith(registry.package), component
        for name, field in component.model_fields.items():
            assert field.description, f"{component.name}: {name} has no description"


METHODS = ("pooling", "weighting", "defence", "strategy", "example-privacy", "outgoing", "attack")


def test_every_method_names_its_source() -> None:
    for registry in (each for each in Registry.known if each.kind in METHODS):
        for component in registry.classes():
            assert "Source: " in (component.__doc__ or "") or component.name == "none", component


def test_a_setting_has_one_meaning() -> None:
    """A key that two components read has the same type in both, and they are of one kind or agree.

    Components of one kind may have different defaults: one of them is picked.
    """
    seen: dict[str, list[tuple[object, object, object]]] = {}
    for registry in REGISTRIES:
        for component in registry.classes():
            for key, field in zip(
                component.setting_keys(), component.model_fields.values(), strict=True
            ):
                for annotation, default, kind in seen.setdefault(key, []):
                    assert field.annotation == annotation, key
                    one_is_picked = registry.kind == kind and registry not in OF_EVERY_RUN
                    assert one_is_picked or field.default == default, key
                seen[key].append((field.annotation, field.default, registry.kind))


def test_a_class_without_a_method_of_its_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pooling 'half': the class Half has no decode"):

        @pooling_rules.register("half")
        class Half(PoolingRule):
            def encode(self, *_: Any) -> Any:
                return None

    assert "half" not in pooling_rules
