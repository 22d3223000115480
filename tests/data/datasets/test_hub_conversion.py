"""Data sets in the hub's format, made in memory; only the download itself is replaced."""

from typing import Any

import datasets
import numpy as np
import pytest

from bfl.data.datasets import Reading, load_dataset
from bfl.data.datasets.hub import read_images
from bfl.errors import DataError

GENERATOR = np.random.Generator(np.random.Philox(1))
LABELS = [3, 0, 9, 3, 1]


def pictures(number: int, *shape: int) -> list[np.ndarray]:
    return list(GENERATOR.integers(0, 256, (number, *shape), np.uint8))


def split(columns: dict[str, list], **features: Any):
    import PIL.Image

    as_images = {
        name: [PIL.Image.fromarray(v) if isinstance(v, np.ndarray) else v for v in values]
        for name, values in columns.items()
    }
    return datasets.Dataset.from_dict(as_images, features=datasets.Features(features))


def digit_names() -> Any:
    return datasets.ClassLabel(names=[str(i) for i in range(10)])


def mnist_split(images: list[np.ndarray], labels: list[int]):
    columns = {"image": images, "label": labels}
    return split(columns, image=datasets.Image(), label=digit_names())


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch):
    """Let ``datasets.load_dataset`` give what the test says, and note what was asked of it."""
    asked: list[tuple[str, str | None]] = []

    def serve(**splits: Any) -> list[tuple[str, str | None]]:
        def load(path: str, name: str | None = None) -> Any:
            asked.append((path, name))
            return datasets.DatasetDict(splits)

        monkeypatch.setattr(datasets, "load_dataset", load)
        return asked

    return serve


@pytest.mark.parametrize(
    ("word", "asked", "shape"),
    [
        ("fashion-mnist", ("zalando-datasets/fashion_mnist", None), (28, 28)),
        ("svhn", ("ufldl-stanford/svhn", "cropped_digits"), (32, 32, 3)),
        ("hf:owner/set:part", ("owner/set", "part"), (7, 9, 3)),
    ],
)
def test_sets_with_one_label(hub, word, asked, shape) -> None:
    train, test = pictures(5, *shape), pictures(2, *shape)
    log = hub(train=mnist_split(train, LABELS), test=mnist_split(test, [2, 2]))
    dataset = load_dataset(word)
    assert log == [asked]
    assert dataset.name == word
    assert dataset.image_shape == (*shape, 1)[:3]
    # Not shuffled: the images stand in the hub's order.
    assert np.array_equal(dataset.train_images.reshape(5, *shape), np.stack(train))
    assert np.array_equal(dataset.test_images.reshape(2, *shape), np.stack(test))
    assert dataset.train_images.dtype == np.uint8
    assert dataset.train_labels.dtype == np.int64
    assert dataset.train_labels.tolist() == LABELS
    assert dataset.class_names == tuple(str(i) for i in range(10))


def test_cifar100_takes_the_fine_labels(hub) -> None:
    part = split(
        {"img": pictures(2, 32, 32, 3), "fine_label": [99, 0], "coarse_label": [1, 2]},
        img=datasets.Image(),
        fine_label=datasets.ClassLabel(names=[f"fine {i}" for i in range(100)]),
        coarse_label=datasets.ClassLabel(names=[f"coarse {i}" for i in range(20)]),
    )
    hub(train=part, valid=part)
    dataset = load_dataset("cifar100")
    assert dataset.test_labels.tolist() == [99, 0]
    assert dataset.class_names[50] == "fine 50"


def test_an_unreachable_hub_tells_what_was_tried(monkeypatch, tmp_path) -> None:
    def unreachable(**_: Any) -> None:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError) as error:
        load_dataset("cifar10", tmp_path)
    for said in ("cifar10.npz", "uoft-cs/cifar10", "Couldn't reach", "data-dir", "x_train"):
        assert said in str(error.value)


def test_numbers_without_names_are_taken_as_classes(hub) -> None:
    part = split(
        {"image": pictures(3, 4, 4), "label": [0, 1, 0], "id": [7, 8, 9]},
        image=datasets.Image(),
        label=datasets.Value("uint8"),
        id=datasets.Value("int64"),
    )
    hub(train=part, test=part)
    dataset = load_dataset("hf:a/b")
    assert dataset.train_labels.tolist() == dataset.test_labels.tolist() == [0, 1, 0]
    assert dataset.class_names == ("0", "1")


def test_grey_images_of_a_colour_set_get_three_channels_in_either_split(hub) -> None:
    colour, grey = pictures(2, 4, 4, 3), pictures(2, 4, 4)
    for train, test in ((colour, grey), (grey, colour)):
        hub(train=mnist_split(train, [0, 1]), test=mnist_split(test, [0, 1]))
        dataset = load_dataset("hf:a/b")
        for images, given in ((dataset.train_images, train), (dataset.test_images, test)):
            assert images.shape == (2, 4, 4, 3)
            assert np.array_equal(images, np.broadcast_to(np.stack(given).reshape(2, 4, 4, -1), images.shape))  # fmt: skip # noqa: E501


def test_kinds_of_images_become_colours_or_floats() -> None:
    grey, clear = pictures(1, 4, 4)[0], pictures(1, 4, 4, 4)[0]
    images = read_images(mnist_split([grey, clear], [0, 1]), "image", "here")
    assert images.shape == (2, 4, 4, 3)
    np.testing.assert_array_equal(images[0], np.repeat(grey[..., None], 3, axis=2))
    deep = mnist_split([np.full((4, 4), 1000, np.uint16)], [0])
    np.testing.assert_allclose(read_images(deep, "image", "here"), 1000 / 257, rtol=1e-6)


def damaged(keep: int) -> Any:
    """Return a split whose second image has so many of its bytes."""
    part = mnist_split(pictures(2, 4, 4), [0, 1])
    content = part.cast_column("image", datasets.Image(decode=False))[1]["image"]["bytes"]
    images = [{"bytes": each, "path": None} for each in (content, content[:keep])]
    columns = {"image": images, "label": [0, 1]}
    return split(columns, image=datasets.Image(), label=digit_names())


def refused_splits() -> dict[str, tuple[dict[str, Any], str]]:
    train = mnist_split(pictures(2, 4, 4), [0, 1])
    image, number, label = datasets.Image(), datasets.Value("int64"), digit_names()
    named = datasets.ClassLabel(names=["x", "y"])
    one = pictures(1, 4, 4)
    words = split({"image": one, "label": ["x"]}, image=image, label=datasets.Value("string"))
    return {
        "no test": ({"train": train}, "test or validation"),
        "another size": (
            {"train": train, "test": mnist_split(pictures(1, 5, 4), [0])},
            "test_images are (5, 4, 1)",
        ),
        "other classes": (
            {"train": train, "test": split({"image": one, "label": [0]}, image=image, label=named)},
            "different classes",
        ),
        "hidden labels": ({"train": train, "test": mnist_split(one, [-1])}, "from -1 to -1"),
        "a missing label": ({"train": train, "test": mnist_split(one * 2, [0, None])}, "'label'"),
        "words": (dict.fromkeys(["train", "test"], words), "ClassLabel"),
        "no image": ({"train": train, "test": mnist_split([*one, None], [0, 1])}, "image 1: "),
        "torn": ({"train": train, "test": damaged(40)}, "split test, image 1: cannot be read"),
        "several sizes": (
            {"train": mnist_split([*one, *pictures(1, 4, 6)], [0, 1]), "test": train},
            "image-size",
        ),
        "nothing": ({"train": mnist_split([], []), "test": train}, "split train"),
        "no labels": (
            {"train": train, "test": split({"image": one, "y": [1]}, image=image, y=number)},
            "image (Image), y (Value)",
        ),
        "several labels": (
            {
                "train": train,
                "test": split({"image": one, "a": [1], "b": [2]}, image=image, a=label, b=label),
            },
            "2 label columns",
        ),
    }


REFUSED = refused_splits()


@pytest.mark.parametrize(("splits", "named"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(hub, splits: dict[str, Any], named: str) -> None:
    hub(**splits)
    with pytest.raises(DataError, match="a/b") as error:
        load_dataset("hf:a/b")
    assert named in str(error.value)


def test_what_is_taken_though_it_is_unusual(hub) -> None:
    """Hidden test labels beside labelled ones, columns of other names, several sizes."""
    train, one = mnist_split(pictures(2, 4, 4), [0, 1]), pictures(1, 4, 4)
    number, label = datasets.Value("int64"), digit_names()
    columns = {"picture": one, "digit": [7], "id": [9]}
    other = split(columns, picture=datasets.Image(), digit=label, id=number)
    hub(train=train, test=mnist_split(one, [-1]), validation=other)
    assert load_dataset("hf:a/b").test_labels.tolist() == [7]
    sizes = mnist_split([*one, *pictures(1, 4, 6)], [0, 1])
    assert read_images(sizes, "image", "here", Reading(image_size=5)).shape == (2, 5, 5, 1)
