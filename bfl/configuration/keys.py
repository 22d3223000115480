"""Keys that every run has; a part's own are declared in its own file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

import pydantic
from pydantic import Field

from bfl.data.datasets import Reading
from bfl.data.images import range_of
from bfl.files import folder_name_problem, given_path
from bfl.posteriors.posterior import SCALE_FLOOR
from bfl.registry import STRICT, kebab

MOST = 1_000_000
"""Rounds, and clients, at most: no machine holds the records of more."""

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]

SERVER_ONLY: dict[str, pydantic.JsonValue] = {"server-only": True}
"""Declaration of a key that the server alone reads: clients are not sent it."""

T = TypeVar("T")


def server_field(default: T, **said: Any) -> T:
    """Return a pydantic ``Field`` of a key that the server alone reads."""
    return cast(T, Field(default, json_schema_extra=SERVER_ONLY, **said))


class Keys(pydantic.BaseModel):
    """The keys that every run has, kebab-case in a configuration.

    Values are those that Flower's run configuration can hold: strings, integers, numbers and
    booleans. A key that does not apply to a run is still checked.
    """

    model_config = pydantic.ConfigDict(**STRICT, use_attribute_docstrings=True)

    dataset: str = "digits"
    """data: a name, npz:FILE, folder:PATH, table:FILE or hf:NAME"""
    strategy: str = server_field("federated-averaging")
    """a method's name, for the values of other keys, or a pooling rule's; what is given for one of
    those keys wins; with pooling or inference given, by default weighted-sum-of-normals"""
    clients: int = server_field(0, ge=0, le=MOST)
    """number of clients; 0: as many as there are SuperNodes"""
    rounds: int = Field(10, ge=1, le=MOST)
    """number of federated rounds"""
    local_epochs: Count = 5
    """epochs of a client in a round, E"""
    batch_size: int = Field(32, ge=2, le=MOST)
    """examples in a training step, B"""
    learning_rate: float = Field(1e-3, gt=0.0, le=1.0)
    """initial learning rate of the optimizer"""
    mc_samples: Count = 20
    """Monte Carlo samples of the final evaluation, M"""
    evaluate_every: int = Field(1, ge=0)
    """rounds between evaluations; 0: only after the last round"""
    seed: int = Field(0, ge=0, lt=2**63)
    """seed of everything random"""
    plugins: str = ""
    """user-defined parts: files (my_parts.py) and names of modules, with commas"""
    output_dir: str = server_field("runs", min_length=1)
    """folder that gets the run's folder"""
    name: str = ""
    """name of the run's folder; empty: made from time and choices"""

    data_dir: str = ""
    """folder with the archives NAME.npz of named data sets"""
    image_size: int = Field(0, ge=0, le=99_999)
    """height and width that all images get (image-fit); 0: as they are"""
    image_channels: Literal[0, 1, 3] = 0
    """channels that all images get, 1 grey or 3 colours; 0: as they are"""
    image_fit: Literal["resize", "pad"] = "resize"
    """how images get image-size: resized, or padded by repeating their edges"""
    pixel_range: str = ""
    """LOW:HIGH, the scale of measurements in arrays of images (npz:): LOW becomes black and HIGH
    white; empty: they are pixels"""
    test_share: float = Field(0.2, gt=0.0, lt=1.0)
    """share of the examples of a folder or table without a test part that is kept for testing, the
    same mixture of classes and the same for every seed"""
    test_sites: str = ""
    """sites to test on that nobody trains on, as in "site:oslo+bergen": a column and its values, of
    a folder or table without a test part; empty: a share of each class"""
    target: str = ""
    """column of a table that is predicted; empty: target, label, class or y"""
    task: Literal["classification", "regression"] = "classification"
    """what is predicted: a class, or a number with Gaussian noise (of tables)"""
    missing: Literal["refuse", "mean", "indicator"] = "refuse"
    """what is done with missing values of a table's inputs: refused; filled by the training rows'
    mean or most frequent category; or that with an input more that says where"""
    columns_left_out: str = ""
    """columns of a table that are no inputs, with commas; partitions may go by them"""
    table_columns: str = ""
    """columns and classes of a table, as a run's network.json has them; empty: by the training
    rows, or by sums over nodes' own tables before round 1, which fill it in"""
    train_examples: float = server_field(0.0, ge=0.0)
    """how many training images are used, the same mixture of classes: 0 all, below 1 a share, from
    1 a number; nodes' own data are used in full"""
    test_examples: float = Field(0.0, ge=0.0)
    """as train-examples, for test images"""
    calibration_share: float = Field(0.0, ge=0.0, le=0.5)
    """what share of its examples each client holds back from training, by which a closing round
    decides; 0: a tenth where there is one, and else nothing"""
    server_data: str = server_field("")
    """the server's own images: 'held-back' from the training images before they are split, or
    another data set; empty: none"""
    server_examples: float = server_field(0.1, ge=0.0)
    """how many of these training images are the server's own: 0 all, below 1 a share, from 1 a
    number"""
    unused_examples: float = server_field(0.0, ge=0.0)
    """how many of the training images nobody has, below 1 a share: with those that are held back
    they are what 'held-back' takes of so many server-examples, so that clients have the images that
    they have there"""
    server_labels: bool = server_field(True)
    """whether the server has these images' labels, by which rounds are validated"""
    server_threads: Count = server_field(1)
    """threads within an operation where the server's network has a say in the result: it distils,
    weighs clients by what they predict, or picks a round or an epoch by its images; the bits depend
    on it"""

    local_lr_decay: float = Field(1.0, gt=0.0, le=1.0)
    """what a client's learning rate is multiplied by after each step of a round; 1: it stays"""
    temperature: float = Field(1.0, gt=0.0, le=1e6)
    """T: clients temper the likelihood, p(D|θ)^(1/T), whatever their objective; below 1 their
    posteriors are colder"""
    class_weights: Literal["equal", "balanced"] = "equal"
    """how much examples count in a client's likelihood: all the same, or the more the fewer its
    class has there, N / (C n_c) for n_c of N examples in C classes"""
    optimizer_state: Literal["reset", "keep"] = "reset"
    """whether the optimizer begins anew each round or goes on where the client's last round
    ended"""
    initial_posterior: str = server_field("")
    """another run's folder, or posterior file, whose posterior the run begins with; empty: the
    network's own, drawn by the seed"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """type in which clients compute activations; parameters are float32"""

    pretrain_examples: float = server_field(0.0, ge=0.0)
    """on how many of the clients' training images the global model is pre-trained: 0 none, below 1
    a share, from 1 a number"""
    pretrain_epochs: Count = server_field(100)
    """epochs of pre-training at most"""
    pretrain_patience: Count = server_field(10)
    """epochs without a better validation accuracy that end pre-training"""
    pretrain_validation: float = server_field(0.1, gt=0.0, lt=1.0)
    """share of the pre-training images held out to validate"""

    scale_floor: float = server_field(SCALE_FLOOR, ge=0.0, le=1.0)
    """least standard deviation of a pooled posterior; 0: none"""

    max_examples: Count = server_field(1_000_000)
    """most training, and most test examples that a client may claim to hold of its own; where the
    server has assigned them, it knows the number"""
    min_clients: float = server_field(0.5, gt=0.0)
    """how many of a round's clients must send a usable posterior: below 1 a share of them, from 1 a
    number"""
    round_retries: int = server_field(2, ge=0)
    """how often clients that fail are asked again when there are fewer"""
    node_timeout: float = server_field(300.0, gt=0.0)
    """seconds to wait for all SuperNodes before the first round"""
    client_timeout: float = Field(3600.0, gt=0.0)
    """seconds that a client may take for a round"""
    attackers: int = Field(0, ge=0)
    """number of hostile clients: those of the first partition ids"""

    evaluate_mc_samples: Count = 5
    """Monte Carlo samples of the others"""
    evaluate_at: Literal["draws", "mean"] = "draws"
    """whether a posterior is evaluated by draws from it or, as a network of points without dropout,
    at its mean"""
    evaluated_by: Literal["server", "clients"] = "server"
    """who evaluates: the server on the test data, or clients as well, each on its own test split,
    with the classes of its training examples"""
    ood_dataset: str = server_field("")
    """foreign images that the final network is shown, joined by '+': data sets, or 'rotated'
    (near), 'inverted' and 'noised' (far) for changed test images; empty: none"""
    corruptions: str = server_field("none")
    """corruptions of test images, at five strengths each, that the final network is evaluated on,
    joined by '+': 'noise', 'blur', 'contrast', 'rotation', 'shot', 'impulse', 'brightness',
    'pixelate', 'jpeg'; or 'none'"""
    figures: Literal["png", "none"] = server_field("png")
    """whether figures are drawn at the end: png or none"""

    plugin_settings: str = server_field("")
    """settings that pyproject.toml does not declare, for `flwr run`, which takes no others:
    key=value pairs"""
    resume: bool = server_field(False)
    """go on with the run of that name where its last checkpoint left it"""

    @property
    def reading(self) -> Reading:
        """Keys that say how the run's data sets are read."""
        return Reading.of(self.model_dump(by_alias=True))

    def clients_evaluate(self, server_round: int) -> bool:
        """Return whether clients evaluate their models after a round; they do after the last."""
        due = self.evaluate_every and server_round % self.evaluate_every == 0
        return self.evaluated_by == "clients" and bool(due or server_round == self.rounds)

    def has(self) -> dict[str, str]:
        """Return which declared properties a run has by keys that pick no part, with the key."""
        by_clients = self.evaluated_by == "clients"
        table: tuple[tuple[str, str, object], ...] = (
            ("raised-variances", "scale-floor", self.scale_floor),
            ("server-images", "server-data", self.server_data),
            ("server-labels", "server-labels", self.server_labels),
            ("pre-training", "pretrain-examples", self.pretrain_examples),
            ("given-start", "initial-posterior", self.initial_posterior),
            ("evaluated-heads", "evaluated-by", by_clients),
            ("evaluated-by-clients", "evaluated-by", by_clients),
            ("asked-once", "round-retries", not self.round_retries),
            ("falling-rate", "local-lr-decay", self.local_lr_decay < 1),
        )
        return {name: key for name, key, has in table if has}

    @pydantic.field_validator("data_dir", "output_dir", "initial_posterior")
    @classmethod
    def _path(cls, path: str, info: pydantic.ValidationInfo) -> str:
        return str(given_path(path, kebab(str(info.field_name)))) if path else path

    @pydantic.field_validator("pixel_range", mode="before")
    @classmethod
    def _scale(cls, given: object) -> object:
        if given:
            range_of(str(given))  # also of two numbers, which it refuses with the form
        return given

    @pydantic.field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        problem = folder_name_problem(name) if name else None
        if problem:
            raise ValueError(f"the name of one folder below output-dir, or nothing ({problem})")
        return name


SERVER_ONLY_KEYS = frozenset(
    kebab(name)
    for name, field in Keys.model_fields.items()
    if field.json_schema_extra == SERVER_ONLY
)
"""The keys whose declarations say so."""
