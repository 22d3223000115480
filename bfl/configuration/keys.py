"""The keys that every run has and that pick no part; a part's own are declared in its own file."""

from __future__ import annotations

import pydantic
from pydantic import Field

from bfl.configuration.key_sections import (
    MOST,
    SERVER_ONLY,
    Aggregation,
    ClosingRound,
    Count,
    Data,
    Evaluation,
    Federation,
    Pretraining,
    Run,
    Section,
    Training,
    server_field,
)
from bfl.data.datasets import Reading
from bfl.data.datasets.pixels import range_of
from bfl.files import folder_name_problem, given_path
from bfl.registry import kebab

ROOM = 512
"""Bytes that a run's name and the names of its files need below ``output-dir``."""


class Everyday(Section):
    """Keys that stand at the top of a file, before all sections."""

    dataset: str = Field(
        "digits",
        description="data: a name, npz:FILE, folder:PATH, table:FILE or hf:NAME",
    )
    strategy: str = server_field(
        "weighted-sum-of-normals",
        description="a method's name, for the values of other keys, or a pooling rule's; what is "
        "given for one of those keys wins",
    )
    clients: int = server_field(
        0, ge=0, le=MOST, description="number of clients; 0: as many as there are SuperNodes"
    )
    rounds: int = Field(10, ge=1, le=MOST, description="number of federated rounds")
    local_epochs: Count = Field(5, description="epochs of a client in a round, E")
    batch_size: int = Field(32, ge=2, le=MOST, description="examples in a training step, B")
    learning_rate: float = Field(
        1e-3, gt=0.0, le=1.0, description="initial learning rate of the optimizer"
    )
    mc_samples: Count = server_field(
        20, description="Monte Carlo samples of the final evaluation, M"
    )
    evaluate_every: int = Field(
        1, ge=0, description="rounds between evaluations; 0: only after the last round"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="seed of everything random")
    plugins: str = Field(
        "",
        description="user-defined parts: files (my_parts.py) and names of modules, with commas",
    )
    output_dir: str = server_field(
        "runs", min_length=1, description="folder that gets the run's folder"
    )
    name: str = server_field(
        "", description="name of the run's folder; empty: made from time and choices"
    )


class Keys(
    Run, Evaluation, ClosingRound, Federation, Aggregation, Pretraining, Training, Data, Everyday
):
    """The keys that every run has, kebab-case in a configuration.

    Values are those that Flower's run configuration can hold: strings, integers, numbers and
    booleans. A key that does not apply to a run is still checked.
    """

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
        return {
            **({"raised-variances": "scale-floor"} if self.scale_floor else {}),
            **({"server-images": "server-data"} if self.server_data else {}),
            **({"server-labels": "server-labels"} if self.server_labels else {}),
            **({"pre-training": "pretrain-examples"} if self.pretrain_examples else {}),
            **({"given-start": "initial-posterior"} if self.initial_posterior else {}),
            **(
                {"evaluated-heads": "evaluated-by", "evaluated-by-clients": "evaluated-by"}
                if self.evaluated_by == "clients"
                else {}
            ),
            **({} if self.round_retries else {"asked-once": "round-retries"}),
            **({"compiled-steps": "jit"} if self.jit == "on" else {}),
            **({"falling-rate": "local-lr-decay"} if self.local_lr_decay < 1 else {}),
        }

    def requires(self) -> dict[str, str]:
        """Return which properties such keys require of the parts, with the key."""
        return {"compilable": "jit"} if self.jit == "on" else {}

    @pydantic.field_validator("data_dir", "output_dir", "initial_posterior")
    @classmethod
    def _path(cls, path: str, info: pydantic.ValidationInfo) -> str:
        what = kebab(str(info.field_name))
        return str(given_path(path, what, room=ROOM * (what == "output-dir"))) if path else path

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
