import pytest
from pydantic import Field

from bfl.configuration.kinds import OF_EVERY_RUN, REGISTRIES
from bfl.data.datasets import dataset_sources
from bfl.errors import ConfigurationError, nearest, unknown_name
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


def test_two_components_cannot_share_a_spelling() -> None:
    registry = make_registry()
    registry.register("circle", aliases=("round",))(Shape)
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("round")(Shape)


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    registry = make_registry()
    registry.register("circle")(type("Circle", (Shape,), {}))
    registry.register("square")(type("Square", (Shape,), {}))
    with pytest.raises(ConfigurationError) as caught:
        registry.get("cirle")
    assert str(caught.value) == (
        "unknown shape 'cirle'; did you mean 'circle'? allowed: circle, square"
    )


def test_nothing_near_gives_no_guess() -> None:
    assert nearest("zzz", ["conflation"]) is None
    assert unknown_name("x", "zzz", ["a"]) == "unknown x 'zzz'; allowed: a"


@pytest.mark.parametrize("registry", [*REGISTRIES, dataset_sources], ids=lambda r: r.kind)
def test_every_component_explains_itself(registry: Registry) -> None:  # type: ignore[type-arg]
    assert registry.names()
    for component in registry.classes():
        assert component.summary(), component
        assert component.__module__.startswith(registry.package), component
        for name, field in component.model_fields.items():
            assert field.description, f"{component.name}: {name} has no description"


def test_data_sets_have_no_settings() -> None:
    """Nobody would read them: what a data set needs stands behind a colon, as in ``npz:PATH``."""
    for source in dataset_sources.classes():
        assert not source.model_fields, f"{source.name}: a data set cannot have settings"


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
