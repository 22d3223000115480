"""Padding, resizing and channels of images, against what the words mean."""

import numpy as np
import pytest

from bfl.data.images import pad, resize, with_channels

GENERATOR = np.random.default_rng(0)


def pictures(*shape: int) -> np.ndarray:
    return GENERATOR.integers(0, 256, shape, dtype=np.uint8)


def test_padding_repeats_edges() -> None:
    images = pictures(3, 28, 27, 2)
    wide = pad(images, 32)
    assert wide.shape == (3, 32, 32, 2)
    # Rows: 2 above and 2 below; columns: 2 left and 3 right.
    rows = np.clip(np.arange(32) - 2, 0, 27)
    columns = np.clip(np.arange(32) - 2, 0, 26)
    np.testing.assert_array_equal(wide, images[:, rows][:, :, columns])
    np.testing.assert_array_equal(pad(images, 28)[:, :, :27], images)
    with pytest.raises(ValueError, match="28 x 27 pixels cannot be padded to 27"):
        pad(images, 27)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_smaller_pixels_are_means_over_areas(channels: int) -> None:
    images = pictures(2, 64, 48, channels)
    small = resize(images, 32, 12)
    means = images.reshape(2, 32, 2, 12, 4, channels).mean(axis=(2, 4))
    assert small.dtype == np.uint8
    assert np.abs(small - means).max() <= 0.5
    row = np.array([[1, 0.5, 0], [0, 0.5, 1]]) / 1.5  # three pixels become two
    expected = row @ images[0, :3, :3, 0] @ row.T
    assert np.abs(resize(images[:1, :3, :3], 2, 2)[0, ..., 0] - expected).max() <= 0.5
    assert resize(images, 64, 48) is images


def test_more_images_than_are_resized_at_once() -> None:
    images = pictures(600, 8, 8, 3)
    small = resize(images, 4, 4)
    for index in (0, 255, 256, 599):
        np.testing.assert_array_equal(small[index], resize(images[index : index + 1], 4, 4)[0])


def test_larger_images_are_interpolated() -> None:
    ramp = np.tile(np.array([0, 100, 200], np.uint8)[:, None, None], (1, 3, 2))[None]
    large = resize(ramp, 6, 3)
    # Centres of the new pixels lie a quarter of an old one from the old centres.
    np.testing.assert_array_equal(large[0, :, 0, 0], [0, 25, 75, 125, 175, 200])
    assert (large == large[:, :, :1]).all()


def test_grey_gets_three_equal_channels_and_colours_their_luminance() -> None:
    import PIL.Image

    grey, colours = pictures(2, 4, 5, 1), pictures(2, 4, 5, 3)
    np.testing.assert_array_equal(with_channels(grey, 3), np.concatenate([grey] * 3, axis=-1))
    pillow = [np.asarray(PIL.Image.fromarray(image).convert("L")) for image in colours]
    difference = with_channels(colours, 1)[..., 0].astype(int) - np.stack(pillow)
    assert np.abs(difference).max() <= 1
    np.testing.assert_array_equal(with_channels(with_channels(grey, 3), 1), grey)
    with pytest.raises(ValueError, match="images of 3 channels cannot be made into images of 2"):
        with_channels(colours, 2)
