import importlib
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


def test_what_cannot_be_imported_is_named_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(Registry, "known", list(Registry.known))
    folder = tmp_path / "parts_that_fail"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE.format(name=folder.name), encoding="utf-8")
    text = PART.format(package=folder.name, name="good", before="")
    (folder / "good.py").write_text(text + "raise ImportError('a typo')\n", encoding="utf-8")
    parts = importlib.import_module(folder.name).parts
    for ask in (parts.classes, parts.names, lambda: parts.get("good")):
        with pytest.raises(ImportError, match="a typo"):
            ask()
    (folder / "good.py").write_text(text, encoding="utf-8")
    assert parts.names() == ("good",)


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
