"""A node's own table before the first round: what its columns hold, and sums over its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Context, Message

from bfl.aggregation.weightings import Equal
from bfl.closing.base import greatest
from bfl.configuration.configuration import says_nothing_measured
from bfl.data.datasets import Dataset, Reading, cached_dataset
from bfl.data.datasets.encoding import Column, add_up
from bfl.data.datasets.reading import COLUMNS, SUMMED
from bfl.errors import ConfigurationError, DataError, public
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.node_description import TableDescription
from bfl.federation.wire import CONFIG, TrainTask, reply_content
from bfl.posteriors import Posterior
from bfl.texts import from_json
from clients.examples import reading_of_query
from clients.masked import masked_sums, read_task
from clients.node import Node
from clients.process import cached_configuration, refuse_task


def describe_table(message: Message, context: Context) -> Message:
    """Answer with the columns and classes of the node's own table, by their names."""
    node, query = Node.of(context), message.content[CONFIG]
    table = _own_table(node, reading_of_query(query, node))
    if node.private and table.numbered_here:
        problem = "this node has private=true: table-columns has to say what its columns become"
        raise public(ConfigurationError(problem))
    columns = table.encoding.columns if table.encoding else ()
    description = TableDescription(
        columns={column.name: column.categories for column in columns},
        class_names=table.class_names,
    )
    return Message(description.to_content(), reply_to=message)


def add_up_table(message: Message, context: Context) -> Message:
    """Answer with sums over the training rows of the node's own table, masked where updates are."""
    import pandas

    node, config = Node.of(context), message.content[CONFIG]
    task: Any = TrainTask.from_config(config)  # type: ignore[arg-type]
    configuration = cached_configuration(task.configuration, node.plugins_folder)
    refuse_task(task, node, configuration)
    if says_nothing_measured(configuration):
        raise public(ConfigurationError("sums over a table are asked of a run with noise"))
    table = _own_table(node, replace(configuration.keys.reading, columns=SUMMED, test_sites=""))
    rows = pandas.DataFrame(dict(table.train_columns))
    columns = [Column.from_dict(each) for each in from_json(str(config[COLUMNS]))]
    sums = add_up(rows, columns, node.dataset)
    if np.abs(sums).max() > greatest(len(rows)):
        raise public(DataError("numbers of its own table are too far from those of the server's"))
    if configuration.exchange.secure_sums:
        masked = read_task(message, node, configuration, len(rows), Equal())
        content = masked_sums(message, context, masked, configuration, sums, len(rows))
    else:
        nothing = np.zeros(0, np.float32)
        content = reply_content(Posterior(nothing, nothing, sums), {NUM_EXAMPLES: len(rows)})
    return Message(content, reply_to=message)


def _own_table(node: Node, reading: Reading) -> Dataset:
    table = cached_dataset(node.dataset, "", reading) if node.dataset else None
    if table is None or table.encoding is None:
        raise public(ConfigurationError("this node is asked for its own table, and has none"))
    return table
