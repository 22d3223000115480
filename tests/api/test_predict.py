"""Predictions from a run's folder alone: those of the run itself, bit for bit, wherever it lies."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from PIL import Image

import bfl
from bfl.commands.main import main
from bfl.data.datasets import load_dataset
from bfl.data.datasets.subset import with_test_examples
from bfl.errors import ConfigurationError, DataError
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.run_folder import NETWORK, RunFolder

# The result first, whose figures are drawn.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("result", "undrawn_figures")]

Images = npt.NDArray[np.uint8]


@pytest.fixture(scope="session")
def images(small: dict[str, Any]) -> Images:
    dataset = with_test_examples(load_dataset("digits"), small["test_examples"])
    return dataset.test_images


def same_as_the_run(predictions: bfl.Predictions, folder: Path) -> None:
    with np.load(folder / "predictions.npz") as archive:
        saved = {n: archive[n] for n in archive.files if not n.startswith("example-")}
    assert predictions.samples == saved["samples"]
    arrays = predictions.arrays()
    assert arrays.keys() - {"class_names"} == saved.keys() - {"labels"}
    for name in saved.keys() - {"labels"}:
        np.testing.assert_array_equal(arrays[name], saved[name])


def test_predictions_are_those_of_the_run_bit_for_bit(result: bfl.Result, images: Images) -> None:
    predictions = bfl.load(result.folder).predict(images)
    same_as_the_run(predictions, result.folder)
    assert predictions.mean_probability.shape == (len(images), 10)
    assert set(predictions.uncertainty) >= set(uncertainties.names())
    assert all(values.shape == (len(images),) for values in predictions.uncertainty.values())
    assert predictions.predicted_names == tuple(str(c) for c in predictions.predicted)
    np.testing.assert_array_equal(predictions.confidence, predictions.mean_probability.max(axis=1))
    as_floats = result.predict(images.astype(np.float32) / 255)
    np.testing.assert_array_equal(as_floats.mean_probability, predictions.mean_probability)


def test_a_run_that_is_evaluated_at_its_mean_predicts_there(
    small: dict[str, Any], images: Images, tmp_path: Path
) -> None:
    clamped = {"scale_parametrization": "log-variance", "log_variance_clamp": 8.0}
    keys = {**small, "rounds": 1, "inference": "flipout", "evaluate_at": "mean", **clamped}
    made = bfl.run(**keys, strategy="nwa", output_dir=str(tmp_path))
    predictions = bfl.load(made.folder).predict(images)
    same_as_the_run(predictions, made.folder)
    exported = made.keras_model().predict(images, verbose=0)
    np.testing.assert_allclose(predictions.mean_probability, exported, rtol=1e-4, atol=1e-6)


def test_the_folder_is_enough(result: bfl.Result, images: Images, tmp_path: Path) -> None:
    """Moved, without the data set, in a process that has never seen the run."""
    shutil.copytree(result.folder, tmp_path / "moved")
    # The data set is gone, and so is a rule of one's own: neither concerns prediction.
    config = tmp_path / "moved" / "config.toml"
    text = config.read_text().replace('dataset = "digits"', 'dataset = "npz:/gone/images.npz"')
    config.write_text(text.replace('strategy = "conflation"', 'strategy = "a-rule-of-my-own"'))
    np.savez(tmp_path / "images.npz", images=images)
    environment = {k: v for k, v in os.environ.items() if k != "BFL_CPUS"}
    command = "import sys; from bfl.commands.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "predict", "moved", "--data", "images.npz"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "and 140 more" in done.stdout
    assert "150 predictions of 3 samples: moved-images-predictions.csv" in done.stdout
    written = pd.read_csv(tmp_path / "moved-images-predictions.csv")
    with np.load(result.folder / "predictions.npz") as saved:
        np.testing.assert_array_equal(written["class"], saved["predicted"])
        for name in ("epistemic", "predictive-entropy"):
            np.testing.assert_array_equal(written[name], saved[name])


def test_image_files_are_predicted_as_their_arrays(
    result: bfl.Result, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder and below it, of other sizes too; a file says which prediction is whose."""
    monkeypatch.chdir(tmp_path)
    for index, name in enumerate(("b.png", "below/a.png")):
        (tmp_path / "new" / name).parent.mkdir(exist_ok=True, parents=True)
        Image.fromarray(images[index, :, :, 0]).save(tmp_path / "new" / name)
    large = Image.fromarray(np.kron(images[2, :, :, 0], np.ones((3, 3), np.uint8)))
    large.convert("RGB").save(tmp_path / "new" / "c.png")
    (tmp_path / "new" / "._b.png").write_bytes(b"left by another system")
    command = ["predict", str(result.folder), "--data", str(tmp_path / "new")]
    right = result.predict(images[[0, 1, 2]]).mean_probability
    assert main([*command, "--output", str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv", dtype={"class": str})
    assert table["image"].tolist() == ["b.png", "below/a.png", "c.png"]
    np.testing.assert_allclose(table["probability"], right.max(axis=1), atol=1e-6)
    of_classes = table[[f"probability of {name}" for name in range(10)]]
    np.testing.assert_allclose(of_classes, right, atol=1e-6)
    assert table["class"].tolist() == [str(each) for each in right.argmax(axis=1)]
    written = tmp_path / f"{result.folder.name}-new-predictions.csv"
    for left in (False, True):
        assert written.exists() == left
        assert main([*command[:-1], "folder:new"]) == 0
    again = written.with_name(f"{written.stem}-2.csv")  # nothing is written over
    assert [len(pd.read_csv(path)) for path in (written, again)] == [3, 3]
    command[-1] = str(tmp_path / "new" / "below" / "a.png")
    assert main([*command, "--output", str(tmp_path / "one.csv")]) == 0
    (tmp_path / "none").mkdir()
    command[-1] = str(tmp_path / "none")
    assert main([*command, "--output", str(tmp_path / "none.csv")]) == 2


def test_samples_can_be_chosen(result: bfl.Result, images: Images) -> None:
    one, more = (result.predict(images[:5], samples=samples) for samples in (1, 4))
    assert (one.samples, more.samples) == (1, 4)
    assert not one.uncertainty["epistemic"].any()
    assert more.uncertainty["epistemic"].all()
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(ConfigurationError, match="samples is"):
            result.predict(images[:5], samples=wrong)  # type: ignore[arg-type]


def test_wrong_images_are_refused_by_the_result_and_by_the_command(
    result: bfl.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match=r"expected \(N, 8, 8, 1\)"):
        result.predict(np.zeros((2, 28, 28, 1), np.uint8))
    np.savez(tmp_path / "wrong.npz", images=np.zeros((2, 28, 28, 1), np.uint8))
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "rows.csv").write_text("a\n1\n")
    output = tmp_path / "there.csv"
    output.write_bytes(b"")
    cases = {
        "expected (N, 8, 8, 1)": ["--data", "wrong.npz"],
        "holds a, b": ["--data", "two.npz"],
        "there is no file": ["--data", "none.npz"],
        "mean wrong.npz": ["--data", "wrogn.npz"],
        "not a NumPy archive": ["--data", "text.npz"],
        "made on images": ["--data", "rows.csv"],
        "is there already": ["--data", "wrong.npz", "--output", str(output)],
        "there is no folder": ["--data", "wrong.npz", "--output", "none/p.csv"],
        "ends in .csv": ["--data", "wrong.npz", "--output", "p.txt"],
        "samples is 0": ["--data", "good.npz", "--samples", "0"],
    }
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        np.savez("good.npz", images=np.zeros((2, 8, 8), np.uint8))
        for word, arguments in cases.items():
            assert main(["predict", str(result.folder), *arguments]) == 2, word
            assert word in capsys.readouterr().err
    finally:
        os.chdir(before)
    assert not list(tmp_path.glob("*-predictions.csv"))


def changed(folder: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> bfl.Result:
    """Return a copy of a run whose description of the network is another."""
    shutil.copytree(folder, to)
    content = RunFolder(to).read_json(NETWORK)
    change(content)
    RunFolder(to).write_json(NETWORK, content)
    return bfl.load(to)


def test_a_description_of_another_network_or_of_none_is_refused(
    result: bfl.Result, images: Images, tmp_path: Path
) -> None:
    def with_model(content: dict[str, Any]) -> None:
        content["keys"]["model"] = "resnet14"

    other, unusable = r"not th.* of the network", "cannot be used"
    for number, (change, match) in enumerate(
        (
            (with_model, other),
            (lambda content: content["class-names"].pop(0), other),
            (lambda content: content.update(format=99), unusable),
            (lambda content: content.pop("image-shape"), unusable),
            (lambda content: content["keys"].pop("seed"), unusable),
        )
    ):
        run = changed(result.folder, tmp_path / str(number), change)
        for use in (lambda run=run: run.predict(images), run.keras_model):
            with pytest.raises(DataError, match=match):
                use()


def test_other_versions_are_warned_of(result: bfl.Result, images: Images, tmp_path: Path) -> None:
    other = changed(
        result.folder, tmp_path / "run", lambda c: c["versions"].update(tensorflow="2.18.0")
    )
    with pytest.warns(UserWarning, match=r"tensorflow 2\.18\.0 \(here"):
        same_as_the_run(other.predict(images), result.folder)


def test_the_keras_model_is_plain(result: bfl.Result, images: Images, tmp_path: Path) -> None:
    """It can be exported, and predicting leaves it alone."""
    from bfl.keras import keras, tf

    central = result.keras_model()
    assert all(isinstance(layer, keras.layers.Layer) for layer in central.layers)
    assert not any("bfl" in type(layer).__module__ for layer in central.submodules)
    before = central.predict(images, verbose=0)
    result.predict(images)
    np.testing.assert_array_equal(central.predict(images, verbose=0), before)
    central.export(tmp_path / "exported")
    served = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(served.serve(images.astype(np.float32)), before, atol=1e-6)
