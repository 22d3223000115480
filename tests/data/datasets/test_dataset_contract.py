"""What every data set that needs neither a file nor the network promises."""

import numpy as np
import pytest

from bfl.data.datasets import Dataset, dataset_sources, load_dataset, said_of
from bfl.data.datasets.named import NamedSource

LOCAL = [
    source.name
    for source in dataset_sources.classes()
    if not source.location_form and not issubclass(source, NamedSource)
]


@pytest.mark.parametrize("name", LOCAL)
def test_a_data_set_is_sound_and_always_the_same(name):
    dataset, again = load_dataset(name), load_dataset(name)
    dataset.check()
    assert dataset.name == name
    for attribute in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(dataset, attribute), getattr(again, attribute))
    for labels in (dataset.train_labels, dataset.test_labels):
        assert np.unique(labels).size >= 2


def test_absent_classes_are_named():
    digits = load_dataset("digits")
    assert said_of(digits) == []
    names = tuple(f"class {label}" for label in range(25))
    few = Dataset(**{**vars(digits), "class_names": names, "test_labels": digits.test_labels // 2})
    train, test = said_of(few)
    assert train == (
        "digits: no train example of 15 of 25 classes: " + ", ".join(names[10:20]) + " and 5 more"
    )
    assert "no test example of 20 of 25 classes: class 5" in test
