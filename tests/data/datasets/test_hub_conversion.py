"""Data sets in the hub's format, made in memory; only the download itself is replaced."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")
pytest.importorskip("flwr_datasets")

from bfl.data.datasets import Reading, load_dataset  # noqa: E402
from bfl.data.datasets.hub import to_arrays  # noqa: E402
from bfl.errors import DataError  # noqa: E402

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


def cifar100_split(images: list[np.ndarray], fine: list[int], coarse: list[int]):
    return split(
        {"img": images, "fine_label": fine, "coarse_label": coarse},
        img=datasets.Image(),
        fine_label=datasets.ClassLabel(names=[f"fine {i}" for i in range(100)]),
        coarse_label=datasets.ClassLabel(names=[f"coarse {i}" for i in range(20)]),
    )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch):
    """Let ``datasets.load_dataset`` give what the test says, and note what was asked of it."""
    import flwr_datasets.common.telemetry as telemetry

    monkeypatch.setattr(telemetry, "FLWR_TELEMETRY_ENABLED", "0")
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
        ("mnist", ("ylecun/mnist", None), (28, 28)),
        ("fashion-mnist", ("zalando-datasets/fashion_mnist", None), (28, 28)),
        ("svhn", ("ufldl-stanford/svhn", "cropped_digits"), (32, 32, 3)),
        ("cifar10", ("uoft-cs/cifar10", None), (32, 32, 3)),
        ("hf:owner/set", ("owner/set", None), (7, 9, 3)),
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
    images = pictures(3, 32, 32, 3)
    part = cifar100_split(images, [99, 0, 50], [1, 2, 3])
    hub(train=part, test=part)
    dataset = load_dataset("cifar100")
    assert dataset.train_labels.tolist() == [99, 0, 50]
    assert dataset.num_classes == 100
    assert dataset.class_names[50] == "fine 50"


def test_tiny_imagenet_is_tested_on_its_validation_images(hub) -> None:
    names = datasets.ClassLabel(names=[f"n{i:08d}" for i in range(200)])

    def part(images, labels):
        columns = {"image": images, "label": labels}
        return split(columns, image=datasets.Image(), label=names)

    train, valid = pictures(2, 64, 64, 3), pictures(1, 64, 64, 3)
    grey = pictures(1, 64, 64)
    log = hub(train=part(train + grey, [0, 199, 7]), valid=part(valid, [3]))
    dataset = load_dataset("tiny-imagenet")
    assert log == [("zh-plus/tiny-imagenet", None)]
    assert dataset.image_shape == (64, 64, 3)
    assert dataset.num_classes == 200
    assert dataset.test_labels.tolist() == [3]
    assert (dataset.train_images[2] == grey[0][..., None]).all()  # a few of them are grey


def test_validation_stands_in_for_test(hub) -> None:
    train, other = mnist_split(pictures(2, 4, 4), [0, 1]), mnist_split(pictures(1, 4, 4), [7])
    hub(train=train, validation=other)
    assert load_dataset("hf:a/b").test_labels.tolist() == [7]
    hub(train=train, validation=train, test=other)
    assert load_dataset("hf:a/b").test_labels.tolist() == [7]


def test_missing_splits_are_named(hub) -> None:
    part = mnist_split(pictures(1, 4, 4), [0])
    hub(train=part)
    with pytest.raises(DataError, match="a/b has no split to test on; tried test, validation"):
        load_dataset("hf:a/b")
    hub(test=part)
    with pytest.raises(DataError, match=r"a/b \(subset c\) cannot be had .*'train'"):
        load_dataset("hf:a/b:c")


def test_an_unreachable_hub_tells_what_was_tried(monkeypatch, tmp_path) -> None:
    def unreachable(**_: Any) -> None:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError) as error:
        load_dataset("cifar10", tmp_path)
    for said in ("cifar10.npz", "uoft-cs/cifar10", "Couldn't reach", "'data-dir'", "x_train"):
        assert said in str(error.value)


def test_splits_that_do_not_go_together_are_refused(hub) -> None:
    train = mnist_split(pictures(2, 4, 4), [0, 1])
    hub(train=train, test=mnist_split(pictures(1, 5, 4), [0]))
    with pytest.raises(DataError, match=r"test_images are \(5, 4, 1\)"):
        load_dataset("hf:a/b")
    names = datasets.ClassLabel(names=["x", "y"])
    other = split({"image": pictures(1, 4, 4), "label": [0]}, image=datasets.Image(), label=names)
    hub(train=train, test=other)
    with pytest.raises(DataError, match="different classes"):
        load_dataset("hf:a/b")


def test_unlabelled_examples_are_refused(hub) -> None:
    train = mnist_split(pictures(2, 4, 4), [0, 1])
    hub(train=train, test=mnist_split(pictures(1, 4, 4), [-1]))
    with pytest.raises(DataError, match="test_labels holds the label -1"):
        load_dataset("hf:a/b")
    with pytest.raises(DataError, match="here: column 'label' has examples without a label"):
        to_arrays(mnist_split(pictures(2, 4, 4), [0, None]), "here")


@pytest.mark.parametrize("kind", ["int64", "uint8", "string", "bool", "float32"])
def test_labels_without_classes_are_taken(hub, kind) -> None:
    given = {"string": ["ant", "bee", "ant"], "bool": [False, True, False]}.get(kind, [0, 1, 0])
    part = split(
        {"image": pictures(3, 4, 4), "label": given, "id": [7, 8, 9]},
        image=datasets.Image(),
        label=datasets.Value(kind),
        id=datasets.Value("int64"),
    )
    hub(train=part, test=part)
    dataset = load_dataset("hf:a/b")
    assert dataset.train_labels.tolist() == dataset.test_labels.tolist() == [0, 1, 0]
    assert dataset.class_names == (("ant", "bee") if kind == "string" else ("0", "1"))


def test_a_test_split_with_hidden_labels_is_passed_over(hub) -> None:
    train, hidden = mnist_split(pictures(2, 4, 4), [0, 1]), mnist_split(pictures(1, 4, 4), [-1])
    hub(train=train, test=hidden, validation=mnist_split(pictures(1, 4, 4), [7]))
    assert load_dataset("hf:a/b").test_labels.tolist() == [7]


def test_grey_images_of_a_colour_set_get_three_channels_in_either_split(hub) -> None:
    colour, grey = pictures(2, 4, 4, 3), pictures(2, 4, 4)
    for train, test in ((colour, grey), (grey, colour)):
        hub(train=mnist_split(train, [0, 1]), test=mnist_split(test, [0, 1]))
        dataset = load_dataset("hf:a/b")
        for images, given in ((dataset.train_images, train), (dataset.test_images, test)):
            assert images.shape == (2, 4, 4, 3)
            assert np.array_equal(images, np.broadcast_to(np.stack(given).reshape(2, 4, 4, -1), images.shape))  # fmt: skip # noqa: E501


def test_an_image_that_is_none_is_named(hub) -> None:
    part = mnist_split(pictures(2, 4, 4), [0, 1])
    content = part.cast_column("image", datasets.Image(decode=False))[1]["image"]["bytes"]
    for damaged in (b"no image", content[:40]):
        torn = split(
            {
                "image": [{"bytes": content, "path": None}, {"bytes": damaged, "path": None}],
                "label": [0, 1],
            },
            image=datasets.Image(),
            label=digit_names(),
        )
        hub(train=part, test=torn)
        with pytest.raises(DataError, match="a/b, split test, image 1: cannot be read"):
            load_dataset("hf:a/b")


def test_mixed_sizes_are_refused() -> None:
    part = mnist_split([*pictures(1, 4, 4), *pictures(1, 4, 6)], [0, 1])
    with pytest.raises(DataError, match=r"here, image 1 is 4 x 6 .*image 0 4 x 4 .*image-size"):
        to_arrays(part, "here")
    assert to_arrays(part, "here", Reading(size=5)).images.shape == (2, 5, 5, 1)


def test_kinds_of_images_become_colours_or_floats() -> None:
    grey, clear = pictures(1, 4, 4)[0], pictures(1, 4, 4, 4)[0]
    images = to_arrays(mnist_split([grey, clear], [0, 1]), "here").images
    assert images.shape == (2, 4, 4, 3)
    np.testing.assert_array_equal(images[0], np.repeat(grey[..., None], 3, axis=2))
    deep = mnist_split([np.full((4, 4), 1000, np.uint16)], [0])
    np.testing.assert_allclose(to_arrays(deep, "here").images, 1000 / 257, rtol=1e-6)


def test_empty_splits_and_missing_images_are_refused() -> None:
    with pytest.raises(DataError, match="here: no images"):
        to_arrays(mnist_split([], []), "here")
    with pytest.raises(DataError, match="image 1: there is no image"):
        to_arrays(mnist_split([*pictures(1, 4, 4), None], [0, 1]), "here")


def test_a_saved_folder_is_read_as_the_hub_is(tmp_path: Path) -> None:
    part = mnist_split(pictures(5, 4, 4), LABELS)
    datasets.DatasetDict(train=part, validation=part).save_to_disk(tmp_path / "saved")
    dataset = load_dataset(f"disk:{tmp_path / 'saved'}")
    assert dataset.train_labels.tolist() == dataset.test_labels.tolist() == LABELS
    np.testing.assert_array_equal(dataset.train_images, to_arrays(part, "here").images)
    (tmp_path / "none").mkdir()
    part.save_to_disk(tmp_path / "alone")
    for name in ("none", "alone"):
        with pytest.raises(DataError, match=name):
            load_dataset(f"disk:{tmp_path / name}")


def test_measurements_of_a_saved_folder_have_the_range(tmp_path: Path) -> None:
    """Images of floats, and of integers that are no measurements on their own."""
    given = [np.full((4, 4), value, np.float32) for value in (-1000.0, 3000.0)]
    parts = mnist_split(given, [0, 1]), mnist_split([*pictures(1, 4, 4)], [0])
    datasets.DatasetDict(train=parts[0], test=parts[1]).save_to_disk(tmp_path / "saved")
    word = f"disk:{tmp_path / 'saved'}"
    dataset = load_dataset(word, "", Reading(pixel_range="-1000:3000"))
    assert np.unique(dataset.train_images).tolist() == [0.0, 255.0]
    np.testing.assert_allclose(
        dataset.test_images, (to_arrays(parts[1], "").images + 1000.0) / 4000 * 255, rtol=1e-6
    )
    deep = mnist_split([np.full((4, 4), 1000, np.uint16)], [0])
    found = to_arrays(deep, "", Reading(pixel_range="0:4000")).images
    np.testing.assert_array_equal(found, 255 / 4)
    with pytest.raises(DataError, match=r"image 1.*3000"):
        load_dataset(word, "", Reading(pixel_range="-1000:2999"))
    with pytest.raises(DataError, match=r"image 0.*pixel-range"):
        load_dataset(word)


def test_columns_are_found_or_listed() -> None:
    image, label = datasets.Image(), digit_names()
    number = datasets.Value("int64")
    pics = pictures(1, 4, 4)
    no_label = split({"image": pics, "y": [1]}, image=image, y=number)
    with pytest.raises(DataError, match=r"0 label columns .*image \(Image\), y \(Value\)"):
        to_arrays(no_label, "here")
    no_image = split({"x": [1], "label": [1]}, x=number, label=label)
    with pytest.raises(DataError, match="0 image columns"):
        to_arrays(no_image, "here")
    two = split({"image": pics, "a": [1], "b": [2]}, image=image, a=label, b=label)
    with pytest.raises(DataError, match="2 label columns"):
        to_arrays(two, "here")
    other_name = split({"picture": pics, "digit": [4], "id": [9]}, picture=image, digit=label, id=number)  # fmt: skip # noqa: E501
    assert to_arrays(other_name, "here")[1].tolist() == [4]
