"""Features in the plane, and how well their groups are apart."""

import numpy as np
import pytest

from bfl.commands.features import in_the_plane, silhouette
from bfl.errors import DataError


def two_groups(distance: float, each: int = 20) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(1).normal(size=(2 * each, 8))
    groups = np.repeat(np.array([0, 1]), each)
    drawn[groups == 1, 0] += distance
    return drawn, groups


@pytest.mark.slow
def test_groups_that_are_apart_are_apart_in_the_plane() -> None:
    features, groups = two_groups(50.0)
    places = in_the_plane(features)
    assert places.shape == (40, 2)
    # Every image lies nearer to all of its own group than to any of the other.
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    same = groups[:, None] == groups[None]
    assert distances[same].max() < distances[~same].min()
    np.testing.assert_array_equal(in_the_plane(features), places)


def test_few_images_have_fewer_neighbours() -> None:
    assert in_the_plane(np.eye(4)).shape == (4, 2)


@pytest.mark.parametrize("shape", [(3, 8), (20, 1)])
def test_too_little_to_lay_out_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=f"^{shape[0]} images of {shape[1]} features"):
        in_the_plane(np.ones(shape))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.full((20, 8), 0.1), "^all 20 images have the same features"),
        (np.full((20, 8), np.inf), "^160 of 160 features are not finite"),
        (np.where(np.eye(20, 8) * np.eye(20, 8)[3], np.nan, 1.0), "^1 of 160 features are not"),
    ],
    ids=["alike", "infinite", "one is not a number"],
)
def test_what_the_search_cannot_take_is_refused(wrong: np.ndarray, said: str) -> None:
    with pytest.raises(DataError, match=said):
        in_the_plane(wrong)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [2.0**-100, 2.0**100], ids=["small", "large"])
def test_places_do_not_depend_on_the_unit_of_the_features(unit: float) -> None:
    """A power of two, by which no digit is rounded."""
    features, _ = two_groups(5.0)
    np.testing.assert_array_equal(in_the_plane(features * unit), in_the_plane(features))


@pytest.mark.parametrize("distance", [0.0, 1.0, 5.0])
def test_silhouette_is_the_one_of_its_definition(distance: float) -> None:
    features, groups = two_groups(distance, each=7)
    found = []
    for i in range(len(features)):
        to = np.linalg.norm(features - features[i], axis=1)
        own = to[groups == groups[i]].sum() / 6
        other = to[groups != groups[i]].mean()
        found.append((other - own) / max(own, other))
    assert silhouette(features, groups) == pytest.approx(np.mean(found), abs=1e-12)


def test_silhouette_of_one_group_or_of_images_alone_is_not_a_number() -> None:
    features, _ = two_groups(1.0, each=3)
    assert np.isnan(silhouette(features, np.zeros(6, np.int64)))
    assert np.isnan(silhouette(features, np.arange(6)))
