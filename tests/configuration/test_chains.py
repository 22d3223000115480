"""Keys that take several parts, one after the other."""

import pydantic
import pytest
from pydantic import Field

from bfl.configuration.component_slots import ComponentSlot
from bfl.errors import ConfigurationError
from bfl.registry import Component, Registry


class Link(Component):
    """A link."""


@pytest.fixture
def chain() -> ComponentSlot:
    registry: Registry[Link] = Registry("links", "bfl.presets")
    registry._discovered = True

    @registry.register("clip", aliases=("clipping",))
    class Clip(Link):
        """Clips."""

        clip_norm: float = Field(1.0, gt=0.0, description="norm")

    @registry.register("noise")
    class Noise(Link):
        """Adds noise."""

    return ComponentSlot(registry, "noise", "links", key="links", chain=True)


def test_a_chain_picks_its_links_in_their_order(chain: ComponentSlot) -> None:
    picked = chain.pick("clipping + noise", {"clip-norm": 2.0, "rounds": 3})
    assert [link.name for link in picked] == ["clip", "noise"]
    assert picked[0].model_dump() == {"clip_norm": 2.0}
    assert chain.word(picked, "clipping + noise") == "clip+noise"
    assert chain.pick(chain.word(picked, ""), {"clip-norm": 2.0}) == picked
    assert [link.name for link in chain.pick("noise+clip", {})] == ["noise", "clip"]


@pytest.mark.parametrize(
    ("word", "said"),
    [("clip+nois", "did you mean 'noise'"), ("clip+clipping", "'clip' twice"), ("clip+", "links")],
)
def test_a_bad_chain_is_explained(chain: ComponentSlot, word: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        chain.pick(word, {})


def test_a_link_refuses_its_settings(chain: ComponentSlot) -> None:
    with pytest.raises(pydantic.ValidationError, match="clip-norm"):
        chain.pick("noise+clip", {"clip-norm": -1.0})
