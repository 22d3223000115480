"""Corruptions grow with their strength, and foreign sources have names of their own."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.data.datasets.foreign import CORRUPTIONS, STRENGTHS, corrupt, foreign_images, is_near
from bfl.data.datasets.reading import Reading
from bfl.data.images import resize, with_channels
from bfl.errors import ConfigurationError

IMAGES = with_channels(load_dataset("digits").test_images[:20], 3)
every = pytest.mark.parametrize("name", CORRUPTIONS)


@every
def test_images_are_further_from_their_own_at_greater_strength(name: str) -> None:
    before = IMAGES.copy()
    shown = [corrupt(IMAGES, name, strength) for strength in STRENGTHS]
    away = [np.abs(each.astype(float) - IMAGES).mean() for each in shown]
    assert away == sorted(away)
    assert 0 < away[0] < 0.7 * away[-1]
    assert all(each.shape == IMAGES.shape and each.dtype == np.uint8 for each in shown)
    np.testing.assert_array_equal(IMAGES, before)
    np.testing.assert_array_equal(corrupt(IMAGES, name, 2), shown[1])


@every
def test_an_image_is_corrupted_in_each_channel_alone_and_whatever_its_shape(name: str) -> None:
    wide = resize(IMAGES, 12, 9)
    assert corrupt(wide, name, 3).shape == wide.shape
    if name not in ("noise", "shot", "impulse"):
        np.testing.assert_array_equal(
            corrupt(wide[..., :1], name, 3), corrupt(wide, name, 3)[..., :1]
        )


def test_what_the_strengths_are() -> None:
    grey = np.full((50, 20, 20, 1), 128, np.uint8)
    assert corrupt(grey, "noise", 1).std() == pytest.approx(0.08 * 255, rel=0.02)
    assert corrupt(grey, "shot", 3).std() == pytest.approx((128 * 255 / 12) ** 0.5, rel=0.02)
    impulses = corrupt(grey, "impulse", 5)
    for level in (0, 255):
        assert (impulses == level).mean() == pytest.approx(0.27 / 2, abs=0.01)
    np.testing.assert_allclose(corrupt(grey, "brightness", 2), 128 + 0.2 * 255)
    red = np.full((1, 4, 4, 3), (100, 50, 0), np.uint8)  # its hue stays
    assert corrupt(red, "brightness", 2)[0, 0, 0].tolist() == [151, 76, 0]
    halves = np.repeat(np.repeat(IMAGES[:, ::2, ::2], 2, axis=1), 2, axis=2)
    np.testing.assert_array_equal(CORRUPTIONS["pixelate"][0](halves, 0.5), halves)
    for name in ("blur", "contrast", "rotation", "pixelate", "jpeg"):
        np.testing.assert_array_equal(corrupt(grey, name, 5), grey)
    halved = corrupt(IMAGES, "contrast", 2).astype(float)
    own = IMAGES.astype(float)
    np.testing.assert_allclose(halved.std(axis=(1, 2)), own.std(axis=(1, 2)) / 2, atol=1)
    np.testing.assert_allclose(halved.mean(axis=(1, 2)), own.mean(axis=(1, 2)), atol=0.5)
    turn, _ = CORRUPTIONS["rotation"]
    np.testing.assert_array_equal(turn(IMAGES, 90.0), np.rot90(IMAGES, axes=(1, 2)))


@pytest.mark.parametrize("given", ["nose", "noise+noise", "none+noise", "noise,blur"])
def test_unknown_corruptions_are_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="corruptions is"):
        resolve({"corruptions": given})


def test_foreign_archives_have_their_own_names(tmp_path: Path) -> None:
    labels, names = np.arange(20) % 2, ("rotated", "a", "b", "more/a")
    for level, name in enumerate(names):
        path = tmp_path / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        images = np.full((20, 8, 8, 1), level + 1, np.uint8)
        np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    given = "rotated+" + "+".join(f"npz:{tmp_path / name}.npz" for name in names)
    found = list(foreign_images(given, "", load_dataset("digits")))
    assert [each.name for each in found] == ["rotated", "rotated-2", "a", "b", "a-2"]
    assert [int(each.images.max()) for each in found[1:]] == [1, 2, 3, 4]
    assert [each.near for each in found] == [True, False, False, False, False]
    pairs = {"tiny-imagenet": True, "cifar-100": True, "mnist": False}
    assert {word: is_near(word, "cifar10") for word in pairs} == pairs
    # Those of an archive have the run's range, and no others.
    given, reading = f"digits+npz:{tmp_path / 'rotated'}.npz", Reading(pixel_range="0:2")
    both = foreign_images(given, "", load_dataset("digits"), reading)
    assert [int(each.images.max()) for each in both] == [255, 127]


def test_foreign_pictures_need_no_classes_and_are_all_taken(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    (tmp_path / "own").mkdir()
    for number in range(len(digits.test_labels) + 3):
        folder = tmp_path / "own" if number % 2 else tmp_path
        Image.new("RGB", (9 + number % 2, 6)).save(folder / f"{number}.png")
    (found,) = foreign_images(f"folder:{tmp_path}", "", digits, Reading(image_fit="pad"))
    assert found.images.shape == (len(digits.test_labels) + 3, *digits.image_shape)
