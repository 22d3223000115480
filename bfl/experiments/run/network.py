"""A run's networks: its trainer, and ``run.json:network``, what predictions need but weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pydantic

from bfl.configuration import Configuration, settings
from bfl.data.datasets import Dataset
from bfl.data.datasets.encoding import Column, Encoding
from bfl.errors import ConfigurationError, DataError
from bfl.evaluation.prediction.predictions import PredictionStatistics
from bfl.evaluation.regression import MixtureStatistics
from bfl.experiments.results import run_folder
from bfl.experiments.results.environment import describe_environment
from bfl.learning.inferences import Inference, inferences
from bfl.learning.models import Architecture, architectures
from bfl.learning.personalizations import PersonalModel
from bfl.plugins import load_plugins, refuse_unnamed
from bfl.posteriors import Manifest, Posterior
from bfl.registry import kebab

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer


FORMAT = 1  # the version of the file's format

SCALING = {"divide-by": 127.5, "subtract": 1.0}
"""Scaling of pixels in [0, 255] by ``normalized_images`` of ``networks.network``."""

EVALUATE_AT = "evaluate-at"
KEYS = ("model", "inference", "seed", "mc-samples", EVALUATE_AT)
"""The keys that predictions depend on, besides model, inference, their settings and plugins."""

VERSIONS = ("bfl", "python", "tensorflow", "tensorflow-probability", "tf-keras", "numpy")


C = TypeVar("C")


class NetworkDescription(pydantic.BaseModel):
    """Description of a run's network: all that predictions need besides the posterior.

    Attributes:
        image_shape: Height, width and channels of an image.
        threads: TensorFlow's threads in the process that evaluated the run; None if unknown.
        columns: The encoding of a table's columns; None: the network takes images.
        target: Mean and deviation of a regression's target; None: another task.
    """

    model_config = pydantic.ConfigDict(frozen=True, alias_generator=kebab, populate_by_name=True)

    format: int = FORMAT
    image_shape: tuple[int, int, int]
    pixels: str = "0 to 255"
    scaling: dict[str, float] = SCALING
    class_names: tuple[str, ...]
    keys: dict[str, settings.Value]
    threads: int | None
    versions: dict[str, str | None]
    columns: tuple[Column, ...] | None = None
    target: Column | None = None
    task: str = "classification"

    @pydantic.model_validator(mode="after")
    def _is_of_this_version(self) -> Self:
        if self.format != FORMAT or self.scaling != SCALING:
            raise ValueError(
                f"it has format {self.format} and scaling {self.scaling}; this version of bfl "
                f"reads format {FORMAT} and scaling {SCALING}"
            )
        if missing := [key for key in KEYS if key not in self.keys]:
            raise ValueError(f"it has no key {missing[0]}")
        return self

    @classmethod
    def of(
        cls, configuration: Configuration, dataset: Dataset, threads: int | None
    ) -> NetworkDescription:
        """Return the description of a run's network for the images or rows of its data set."""
        parts = (configuration.architecture, configuration.inference)
        own = [key for part in parts for key in settings.settings_of(type(part))]
        environment = describe_environment()
        types = [type(part) for part in parts]
        named = [p for p in load_plugins(configuration.keys.plugins) if any(map(p.defines, types))]
        plugins = {"plugins": ", ".join(plugin.place for plugin in named)} if named else {}
        shared = {"shared": configuration.words["shared"]} if configuration.shared.partial else {}
        known = {key: configuration.values[key] for key in (*KEYS, *own)}
        return cls(
            image_shape=dataset.image_shape,
            class_names=dataset.class_names,
            keys={**plugins, **known, **shared},
            threads=threads,
            versions={name: environment[name] for name in VERSIONS},
            columns=dataset.encoding.columns if dataset.encoding else None,
            target=dataset.target,
            task=configuration.keys.task,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``run.json:network``, without what the network does not have."""
        fields = {name: type(self).model_fields[name] for name in ("columns", "target", "task")}
        absent = {name for name, field in fields.items() if getattr(self, name) == field.default}
        return self.model_dump(mode="json", by_alias=True, exclude=absent)

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of a table; None: the network takes images."""
        return Encoding(self.columns) if self.columns else None

    @property
    def at_mean(self) -> bool:
        """True if the run's posterior is evaluated at its mean, as a network of points."""
        return self.keys[EVALUATE_AT] == "mean"

    @property
    def architecture(self) -> Architecture:
        """The network's architecture; ConfigurationError where this version does not know it."""
        return self._created("model", architectures.create)

    @property
    def inference(self) -> Inference:
        """The form of the network's weights; ConfigurationError as for the architecture."""
        return self._created("inference", inferences.create)

    def _created(self, key: str, create: Callable[[str, Mapping[str, Any]], C]) -> C:
        refuse_unnamed(str(self.keys.get("plugins", "")), f"the run's {run_folder.NETWORK}")
        try:
            return create(str(self.keys[key]), self.keys)
        except pydantic.ValidationError as error:
            raise ConfigurationError("\n".join(settings.refused_values(error))) from error


def network_description(folder: run_folder.RunFolder) -> NetworkDescription:
    """Return the description of a run's network; DataError where it is missing or corrupt."""
    content = folder.read_json(run_folder.NETWORK)
    try:
        return NetworkDescription.model_validate(content)
    except pydantic.ValidationError as error:
        why = "; ".join(settings.refused_values(error))
        raise DataError(f"{folder.path / run_folder.NETWORK} cannot be used: {why}") from error


def given_posterior(given: str, manifest: Manifest | None = None) -> Posterior:
    """Return the posterior that ``initial-posterior`` names: a run's folder, or a file in one.

    Raises:
        ConfigurationError: It cannot be read, or is of another network than ``manifest``'s.
    """
    path = Path(given)
    folder, file = (path, run_folder.POSTERIOR) if path.is_dir() else (path.parent, path.name)
    try:
        posterior, theirs = run_folder.RunFolder(folder).posterior(file)
    except DataError as error:
        raise ConfigurationError(
            f"initial-posterior is '{given}'; allowed: a finished run's folder, or its "
            f"{run_folder.POSTERIOR}: {error}"
        ) from error

    def parameters(of: Manifest) -> list[tuple[str, tuple[int, ...], bool]]:
        return [(each.name, each.shape, each.gaussian) for each in of]

    if manifest is not None and parameters(manifest) != parameters(theirs):
        raise ConfigurationError(
            f"initial-posterior is '{given}', of another network; allowed: a posterior of a run "
            "with the same model, inference, images and classes"
        )
    return posterior


def statistics_of(target: Column | None) -> Callable[[], Any]:
    """Return the constructor of the statistics of predictions, of numbers if there is a target."""
    return (lambda: MixtureStatistics(target)) if target else PredictionStatistics


def trainer_for(
    configuration: Configuration,
    image_shape: tuple[int, int, int],
    classes: int,
    personal_model: str = "",
) -> LocalTrainer:
    """Return the trainer for a configuration and images, built and traced once per process.

    An empty ``personal_model`` is the global one.
    """
    from bfl.keras import has_gpu
    from bfl.learning.networks import network as networks
    from bfl.learning.training import trainer

    check_images(configuration.words["model"], configuration.architecture, image_shape)
    keys = configuration.keys
    network = networks.build_network(
        configuration.architecture, configuration.inference, image_shape, classes, keys.precision
    )
    personalization, personal = configuration.personalization, None
    if isinstance(personalization, PersonalModel):
        own = personal_network(configuration, personal_model, image_shape, classes)
        mean = networks.build_predictor(
            network, configuration.architecture, keys.precision, role="mean"
        )
        personal = trainer.PersonalNetwork(
            personalization, own, configuration.personal_optimizer, mean
        )
    return trainer.local_trainer(
        network,
        keys.batch_size,
        configuration.augmentation,
        configuration.optimizer,
        objective=configuration.objective,
        correction=configuration.correction,
        temperature=keys.temperature,
        rate_decay=keys.local_lr_decay,
        personal=personal,
        example_privacy=configuration.example_privacy,
        compiled=configuration.architecture.compilable and has_gpu(),
    )


def personal_network(
    configuration: Configuration, model: str, image_shape: tuple[int, int, int], classes: int
) -> Network:
    """Return the network of a personal model, built once per process; see ``trainer_for``."""
    from bfl.learning.networks.network import build_network

    architecture = personal_architecture(configuration, model)
    check_images(model or configuration.words["model"], architecture, image_shape)
    inference, precision = inferences.create("deterministic"), configuration.keys.precision
    return build_network(architecture, inference, image_shape, classes, precision, "personal")


def personal_architecture(configuration: Configuration, model: str) -> Architecture:
    """Return the architecture of a personal model; an empty name is the global one."""
    if not model:
        return configuration.architecture
    return architectures.create(model, configuration.values)


def check_images(
    word: str, architecture: Architecture, image_shape: tuple[int, int, int], dataset: str = ""
) -> None:
    """Raise ConfigurationError if images (of a data set, if named) are too small for a network."""
    if min(image_shape[:2]) < architecture.minimum_side:
        whose = f", as those of dataset '{dataset}' are" if dataset else ""
        raise ConfigurationError(
            f"model '{word}' takes images of at least {architecture.minimum_side} pixels a side, "
            f"not {image_shape[0]} x {image_shape[1]}{whose}"
        )


def check_models(configuration: Configuration, dataset: Dataset, clients: int) -> None:
    """Refuse images that are too small for the network, or for a client's personal one."""
    architectures = {configuration.words["model"]: configuration.architecture}
    personalization = configuration.personalization
    if isinstance(personalization, PersonalModel):
        for word in filter(None, personalization.assignment.words(clients)):
            architectures[word] = personal_architecture(configuration, word)
    for word, architecture in architectures.items():
        check_images(word, architecture, dataset.image_shape, configuration.keys.dataset)
