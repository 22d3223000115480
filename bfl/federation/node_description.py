"""Description that a node gives of itself before the first round, as Flower's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from bfl.federation.client_text import neutralized
from bfl.federation.wire import CONFIG, VERSION, WIRE_FORMAT, WireFormatError, check_version

PERSONAL_MODELS = "personal-models"
"""Entry of a query where clients train personal models, for which a node may have its own word."""


@dataclass(frozen=True)
class NodeDescription:
    """Description of a node before the first round.

    Attributes:
        partition_id: Which client of the partition it plays.
        num_partitions: How many clients there are.
        own_examples: The size of the data of its own that it holds; 0: it takes its part of the
            run's data set.
        code: The digest of the code that it runs; empty: not this package's.
        allows_attack: Whether it would play a hostile client.
        keeps_state: Whether what its client keeps outlives the node and Flower's run.
        noise_anew: Whether the noise of an update that it makes again is drawn anew.
        plugins: Why the run's plugins cannot be used on it; empty: they can, or there are none.
        data: Why the data that it would train on cannot be had; empty: they can, or were not asked.
        labels: Why the labels of its own data are not the run's; empty: they are, or it has none.
        personal_model: Why a personal model of its own cannot be trained on the data; empty: it
            can, or there is none, or was not asked.
        reads_run_paths: Whether it is a SuperNode that looks for data where the server has them.
    """

    partition_id: int
    num_partitions: int
    own_examples: int
    code: str
    allows_attack: bool = False
    keeps_state: bool = False
    plugins: str = ""
    data: str = ""
    labels: str = ""
    personal_model: str = ""
    noise_anew: bool = True
    reads_run_paths: bool = False

    @property
    def unfit(self) -> str:
        """Reason why it cannot take part; empty: it can."""
        return next(filter(None, self._problems.values()), "")

    @property
    def _problems(self) -> dict[str, str]:
        """Reasons that keep it from taking part, by their names in a message."""
        return {
            "plugins": self.plugins,
            "data": self.data,
            "labels": self.labels,
            "personal-model": self.personal_model,
        }

    def to_content(self) -> RecordDict:
        """Return the description as a message's content."""
        said: dict[str, Any] = {
            VERSION: WIRE_FORMAT,
            "partition-id": self.partition_id,
            "num-partitions": self.num_partitions,
            "own-examples": self.own_examples,
            "code": self.code,
            "allows-attack": self.allows_attack,
            "keeps-state": self.keeps_state,
            "noise-anew": self.noise_anew,
            **({"reads-run-paths": True} if self.reads_run_paths else {}),
            **{name: problem for name, problem in self._problems.items() if problem},
        }
        return RecordDict({CONFIG: ConfigRecord(said)})

    @classmethod
    def from_content(cls, content: RecordDict) -> NodeDescription:
        """Return the description in a message's content.

        Raises:
            WireFormatError: It is not as docs/wire-format.md says.
        """
        if not isinstance(content.get(CONFIG), ConfigRecord):
            raise WireFormatError(f"a node describes itself without a record '{CONFIG}'")
        record: Any = content[CONFIG]
        check_version(record, "a node")
        for key in ("partition-id", "num-partitions", "own-examples"):
            if type(record.get(key)) is not int or record[key] < 0:
                raise WireFormatError(
                    f"a node says {key} {record.get(key)!r} of itself; expected a whole number "
                    "from 0"
                )
        return cls(
            partition_id=record["partition-id"],
            num_partitions=record["num-partitions"],
            own_examples=record["own-examples"],
            code=str(record.get("code", "")),
            allows_attack=record.get("allows-attack") is True,
            keeps_state=record.get("keeps-state") is True,
            plugins=neutralized(str(record.get("plugins", ""))),
            data=neutralized(str(record.get("data", ""))),
            labels=neutralized(str(record.get("labels", ""))),
            personal_model=neutralized(str(record.get("personal-model", ""))),
            noise_anew=record.get("noise-anew") is not False,
            reads_run_paths=record.get("reads-run-paths") is True,
        )
