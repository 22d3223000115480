"""Features of a run's network, and the command that draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import bfl
from bfl.commands.main import main
from bfl.data.datasets import load_dataset
from bfl.evaluation.features import silhouette
from bfl.experiments.comparison.layouts import Layout

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("result", "undrawn_figures")]

Images = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def images() -> Images:
    return load_dataset("digits").test_images[:60]


@pytest.fixture
def files(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    labels = load_dataset("digits").test_labels[:60]
    np.savez("digits.npz", x_test=images, y_test=labels)
    np.save("others.npy", images[::-1])
    np.save("number.npy", np.array(3))
    np.savez("empty.npz", images=images[:0], labels=labels[:0])
    return tmp_path


def test_the_last_layer_turns_features_into_what_the_network_predicts(
    result: bfl.Result, images: Images
) -> None:
    features = result.features(images)
    model = result.keras_model()
    head = [layer for layer in model.layers if layer.weights][-1].layers[-1]
    kernel, bias = (weights.numpy() for weights in head.weights)
    logits = features @ kernel + bias
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert features.shape == (60, len(kernel))
    np.testing.assert_allclose(shares, model.predict(images, verbose=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.features(images[7:8])[0], features[7], rtol=1e-4, atol=1e-5)


def test_the_command_draws_runs_and_files(
    result: bfl.Result, images: Images, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(result.folder)
    arguments = ["--data", "digits.npz", "--unlabelled", "others.npy"]
    assert main(["features", run, run, *arguments, "--output", "two.png"]) == 0
    assert Path("two.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    labels = load_dataset("digits").test_labels[:60]
    apart = silhouette(result.features(images), labels.astype(np.int64))
    assert printed.count("digits.npz, by label") == 2
    assert printed.count("others.npy, by prediction") == 2
    assert f"{apart:.4f}"[:5] in printed


def test_images_of_some_classes_alone(
    result: bfl.Result, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_two = np.isin(load_dataset("digits").test_labels[:60], [3, 5]).sum()
    arguments = ["--data", "digits.npz", "--classes", "3", "5"]
    assert main(["features", str(result.folder), *arguments]) == 0
    assert f" {of_two} " in capsys.readouterr().out


def test_some_images_of_a_sorted_file_are_of_all_classes(
    result: bfl.Result, images: Images, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Layout] = []
    monkeypatch.setattr(
        "bfl.commands.features.draw_layouts", lambda rows, _: drawn.extend(rows[0]) or b""
    )
    labels = np.sort(load_dataset("digits").test_labels[:60])
    np.savez("sorted.npz", images=images, labels=labels)
    arguments = ["--data", "sorted.npz", "--images", "30"]
    assert main(["features", str(result.folder), *arguments]) == 0
    assert len(drawn[0].groups) == 30
    assert len(set(drawn[0].groups)) > 7


WRONG: list[tuple[list[str], str]] = [
    ([], "there are no images"),
    (["--data", "digits.npz", "--classes", "seven"], "class 'seven'"),
    (["--data", "digits.npz", "--images", "0"], "--images is 0"),
    (["--data", "digits.npz", "--images", "3"], "3 images of"),
    (["--data", "digits.npz", "--output", "features.pdf"], "ends in .png"),
    (["--data", "others.npy"], "the classes of its images are not known"),
    (["--data", "nowhere.npz"], "there is no file nowhere.npz"),
    (["--data", "digits.npz", "--output", "none/f.png"], "there is no folder"),
    (["--data", "empty.npz"], "holds no images"),
    (["--unlabelled", "number.npy"], "holds one number"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[said for _, said in WRONG])
def test_bad_input_is_refused_in_words(
    result: bfl.Result,
    files: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["features", str(result.folder), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not Path("features.png").exists()
