"""A task as a record: what has its default is left out, and nothing else is lost."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from bfl.errors import ConfigurationError
from bfl.federation.wire import CONFIG, TrainTask, train_content

TASKS = [
    TrainTask(1, 0, "{}", 10, None),
    TrainTask(3, 2, "{}", 10, None, run_folder="/runs/one", run_key="word"),
    TrainTask(3, 2, "{}", 10, None, pooled_round=2, damping=0.5),
    TrainTask(3, 2, "{}", 10, None, pooled_round=2),
]


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_task_comes_back_as_it_was_sent(task: TrainTask) -> None:
    content = train_content(ArrayRecord(), task)
    assert TrainTask.from_config(content.config_records[CONFIG]) == task


def test_another_languages_numbers_are_read_by_the_fields_types() -> None:
    record = TrainTask(1, 2, "{}", 10, None).to_config()
    record["partition-id"], record["damping"] = 2.0, 1
    read = TrainTask.from_config(record)
    assert (type(read.partition_id), type(read.damping)) == (int, float)


def test_positions_come_back() -> None:
    task = TrainTask(1, 0, "{}", 10, np.array([3, 1]), test_examples=np.array([7]))
    read = TrainTask.from_config(task.to_config())
    np.testing.assert_array_equal(read.examples, [3, 1])
    np.testing.assert_array_equal(read.test_examples, [7])


@pytest.mark.parametrize(
    "name", ["wire-format", "damping", "pooled-round", "run-key", "examples", "test-examples"]
)
def test_a_name_that_a_task_may_have_is_refused_also_where_it_is_left_out(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        train_content(ArrayRecord(), TASKS[0], {name: 1})
