"""Which parameters travel, of every choice, on manifests written by hand."""

import numpy as np
import pytest

from bfl.errors import ConfigurationError, PosteriorError
from bfl.learning.shared import SharedParameters, shared_parameters
from bfl.posteriors import Manifest, Parameter, Posterior
from bfl.posteriors.posterior import VECTORS

LAYERS = {
    "conv1": ((3, 3, 1, 2), True),
    "norm": (None, False),
    "conv2": ((3, 3, 2, 2), True),
    "dense1": ((4, 3), True),
    "logits": ((3, 5), True),
}


def manifest(layers: str = "conv1 norm conv2 dense1 logits", *, gaussian: bool = True) -> Manifest:
    """Return a network's parameters: kernels and biases, and a normalisation's points."""
    found: list[Parameter] = []
    for layer in layers.split():
        shape, varies = LAYERS[layer]
        if shape is None:
            found.append(Parameter(f"{layer}/scale", (2,), False, "ones"))
            found.append(Parameter(f"{layer}/moving_variance", (2,), False, "ones", 0.0, False))
        else:
            kind = gaussian and varies
            found.append(Parameter(f"{layer}/kernel", shape, kind, "he-normal"))
            found.append(Parameter(f"{layer}/bias", shape[-1:], kind, "zeros"))
    return Manifest(tuple(found))


def names(given: Manifest) -> list[str]:
    return [parameter.name for parameter in given]


def layers_of(given: Manifest) -> list[str]:
    return list(dict.fromkeys(name.rpartition("/")[0] for name in names(given)))


@pytest.mark.parametrize("gaussian", [True, False], ids=["gaussians", "points"])
@pytest.mark.parametrize("choice", shared_parameters.classes(), ids=lambda cls: cls.name)
def test_what_travels_and_what_stays_make_the_whole_again(
    choice: type[SharedParameters], gaussian: bool
) -> None:
    whole = manifest(gaussian=gaussian)
    division = choice().division(whole)
    rng = np.random.default_rng(0)
    size, points = whole.gaussian_size, whole.point_size
    posterior = Posterior(
        rng.normal(size=size).astype(np.float32),
        rng.uniform(0.1, 1, size).astype(np.float32),
        rng.uniform(0.1, 1, points).astype(np.float32),
    )
    shared, head = division.shared_of(posterior), division.head_of(posterior)
    division.shared.check(shared)
    assert division.join(shared, head).digest() == posterior.digest()
    for name in VECTORS:
        sizes = getattr(shared, name).size + getattr(head, name).size
        assert sizes == getattr(posterior, name).size
    # Each value is that of its own tensor: the shared vectors are those of the shared manifest.
    for of_gaussians, vector in ((True, "mean"), (False, "point")):
        all_parts = whole.split(getattr(posterior, vector), gaussian=of_gaussians)
        tensors = dict(zip(whole.gaussian if of_gaussians else whole.point, all_parts, strict=True))
        mine = division.shared
        parts = mine.split(getattr(shared, vector), gaussian=of_gaussians)
        for parameter, part in zip(
            mine.gaussian if of_gaussians else mine.point, parts, strict=True
        ):
            np.testing.assert_array_equal(part, tensors[parameter])
    if not choice.partial:
        assert shared.digest() == posterior.digest()
        assert division.shared == whole
        assert not choice().client_state_name


def test_the_choices_name_their_layers() -> None:
    def of(word: str, layers: str = "conv1 norm conv2 dense1 logits") -> list[str]:
        return layers_of(shared_parameters.create(word).division(manifest(layers)).shared)

    assert of("convolutions") == ["conv1", "norm", "conv2"]
    assert of("body") == of("all-but-the-head") == ["conv1", "norm", "conv2", "dense1"]
    assert of("all") == ["conv1", "norm", "conv2", "dense1", "logits"]
    assert of("body", "dense1 logits") == ["dense1"]
    with pytest.raises(ConfigurationError, match="its layers are dense1, logits"):
        of("convolutions", "dense1 logits")


def test_what_a_client_receives_has_the_size_of_what_travels() -> None:
    division = shared_parameters.create("convolutions").division(manifest())
    whole = division.manifest.initial_posterior(0, 0.1)
    with pytest.raises(PosteriorError, match="expected"):
        division.join(whole, division.head_of(whole))
