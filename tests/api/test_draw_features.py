"""Features of a run's network, and the command that draws them."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

import bfl
from bfl.commands.features import silhouette
from bfl.commands.main import main
from bfl.data.datasets import load_dataset
from bfl.experiments.results.figures.images import Layout

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
    np.savez("named.npz", one=images, other=images)
    np.savez("great.npz", images=images[:2], labels=np.array([0, 2**64 - 1], np.uint64))
    np.savez("few.npz", images=images[:3], labels=labels[:3])
    Path("others.npy.png").touch()
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


def test_of_unlabelled_images_those_are_predicted_that_are_drawn(
    result: bfl.Result, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some classes all have to be: then the predictions decide which are drawn."""
    predicted: list[int] = []

    def predict(self: bfl.Result, images: Images) -> SimpleNamespace:
        predicted.append(len(images))
        return SimpleNamespace(predicted=np.arange(len(images)) % 10)

    monkeypatch.setattr(bfl.Result, "predict", predict)
    arguments = ["--unlabelled", "others.npy", "--images", "10"]
    assert main(["features", str(result.folder), *arguments]) == 0
    more = [*arguments, "--classes", "3", "5", "--output", "more.png"]
    assert main(["features", str(result.folder), *more]) == 0
    assert predicted == [10, 60]


@pytest.mark.parametrize("of_images", [False, True])
def test_what_is_wrong_with_the_last_run_or_file_is_said_before_any_is_computed(
    result: bfl.Result,
    files: Path,
    of_images: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run's faults in the run's name, and not in that of a file of images."""
    monkeypatch.setattr(bfl.Result, "features", lambda *_: pytest.fail("computed"))
    folder = files / "unfinished"
    shutil.copytree(result.folder, folder)
    if not of_images:
        (folder / "posterior.npz").unlink()
    arguments = ["--data", "digits.npz", *(["--unlabelled", "number.npy"] if of_images else [])]
    assert main(["features", str(result.folder), str(folder), *arguments]) == 2
    said = capsys.readouterr().err
    if of_images:
        assert said.startswith("refused: number.npy holds one number")
    else:
        assert said.startswith(f"refused: {folder} has no posterior.npz")


WRONG: list[tuple[list[str], str]] = [
    ([], "there are no images"),
    (["--data", "digits.npz", "--classes", "seven"], "class 'seven'"),
    (["--data", "digits.npz", "--images", "0"], "--images is 0"),
    (["--data", "digits.npz", "--images", "3"], "--images is 3; allowed: at least 4"),
    (["--data", "digits.npz", "--output", "features.pdf"], "ends in .png"),
    (["--data", "others.npy"], "the classes of its images are not known"),
    (["--data", "nowhere.npz"], "there is no file nowhere.npz"),
    (["--data", "digits.npz", "--output", "none/f.png"], "there is no folder"),
    (["--data", "empty.npz"], "images are empty"),
    (["--unlabelled", "number.npy"], "holds one number"),
    (["--unlabelled", "named.npz"], "the array of its images has to be called images or x_test"),
    (["--data", "great.npz"], "from 0 to 18446744073709551615"),
    (["--data", "few.npz"], "few.npz: 3 of 3 images are of the classes asked for"),
    (["--data", "digits.npz", "--output", "others.npy.png"], "others.npy.png is there already"),
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
