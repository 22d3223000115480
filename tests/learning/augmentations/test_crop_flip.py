"""What every augmentation keeps to, and crops and flips against all crops and flips."""

import numpy as np
import pytest

from bfl.learning.augmentations import augmentations

pytestmark = pytest.mark.usefixtures("tensorflow")

KEY = np.array([1, 2], np.int32)


def make_images(count, height=5, width=4, channels=2):
    """Images whose values are all different, and none of them 0."""
    values = np.arange(1, count * height * width * channels + 1, dtype=np.float32)
    return np.random.default_rng(0).permutation(values).reshape(count, height, width, channels)


def crops_and_flips(image, pad, mode="constant"):
    """Return every (top, left, flipped) with the image that it gives."""
    height, width = image.shape[:2]
    padded = np.pad(image, [(pad, pad), (pad, pad), (0, 0)], mode=mode)
    found = {}
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            crop = padded[top : top + height, left : left + width]
            found[top, left, False] = crop
            found[top, left, True] = crop[:, ::-1]
    return found


def which(image, result, pad):
    """Return the (top, left, flipped) that give the result; one of them, if it is a crop at all."""
    matches = [
        choice
        for choice, crop in crops_and_flips(image, pad).items()
        if np.array_equal(crop, result)
    ]
    assert len(matches) == 1
    return matches[0]


@pytest.mark.parametrize("shape", [(5, 4, 2), (4, 7, 1), (8, 8, 3)])
@pytest.mark.parametrize("pad", [1, 2])
def test_every_output_is_a_crop_of_the_padded_image(shape, pad):
    images = make_images(30, *shape)
    crop_flip = augmentations.create("crop-flip", {"crop-padding": pad})
    results = crop_flip.augment(images, KEY).numpy()
    assert results.shape == images.shape
    assert results.dtype == images.dtype
    choices = [which(image, result, pad) for image, result in zip(images, results, strict=True)]
    # Each image has a choice of its own.
    assert len(set(choices)) > 10


def test_choices_are_uniform_and_independent():
    pad, count = 1, 3600
    images = make_images(1, 4, 3, 1).repeat(count, axis=0)
    crop_flip = augmentations.create("crop-flip", {"crop-padding": pad})
    results = crop_flip.augment(images, KEY).numpy()
    table = np.zeros((3, 3, 2))
    for result in results:
        top, left, flipped = which(images[0], result, pad)
        table[top, left, int(flipped)] += 1
    expected = count / table.size
    # χ² with 17 degrees of freedom: beyond 50 once in 24,000 keys.
    assert ((table - expected) ** 2 / expected).sum() < 50


def test_padding_may_be_reflected():
    images = make_images(30)
    settings = {"crop-padding": 2, "crop-padding-with": "reflection"}
    results = augmentations.create("crop-flip", settings).augment(images, KEY).numpy()
    for image, result in zip(images, results, strict=True):
        found = crops_and_flips(image, 2, "reflect").values()
        assert any(np.array_equal(crop, result) for crop in found)


def test_padding_may_be_black():
    """−1 is black of images in [−1, 1]; zeros are a medium grey."""
    images = make_images(30)
    settings = {"crop-padding": 2, "crop-padding-with": "black"}
    results = augmentations.create("crop-flip", settings).augment(images, KEY).numpy()
    grey = augmentations.create("crop-flip", {"crop-padding": 2}).augment(images, KEY).numpy()
    assert (grey == 0).any()
    np.testing.assert_array_equal(results, np.where(grey == 0, -1, grey))


@pytest.mark.parametrize("name", augmentations.names())
def test_images_stay_images_and_the_key_alone_decides(name: str) -> None:
    from bfl.keras import tf

    augmentation = augmentations.create(name)
    augment = tf.function(augmentation.augment)
    images = np.random.default_rng(0).uniform(-1, 1, (6, 9, 8, 2)).astype(np.float32)
    keys = [np.array(words, np.int32) for words in ((1, 2), (1, 3), (1, 2))]
    first, other, again = (augment(images, key).numpy() for key in keys)
    assert first.shape == images.shape
    assert first.dtype == images.dtype
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    changes = not np.array_equal(first, images)
    assert changes == (name != "none") == (not np.array_equal(first, other))
