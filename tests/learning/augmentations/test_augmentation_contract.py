"""What every registered augmentation keeps to."""

import numpy as np
import pytest

from bfl.learning.augmentations import augmentations

pytestmark = pytest.mark.usefixtures("tensorflow")


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
