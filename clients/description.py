"""Answers of a node before the first round: who it is, why it cannot take part, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message

from bfl import errors
from bfl.aggregation.weightings import Equal
from bfl.closing.base import greatest
from bfl.data.datasets import Dataset, Reading, cached_dataset
from bfl.data.datasets.encoding import Column, add_up
from bfl.data.datasets.reading import COLUMNS, SUMMED
from bfl.federation import node_description, wire
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.plugins import load_plugins
from bfl.posteriors import Posterior
from bfl.texts import few, from_json
from clients import examples
from clients.masked import mask_sums, read_task
from clients.node import Node, cached_configuration, reason_for_server, refuse_task, tell_operator


def describe(message: Message, context: Context) -> Message:
    """Describe this node: its partition, its own number of examples, and its code."""
    node = Node.of(context)
    query: Any = message.content.get(wire.CONFIG, {})
    # Before the data, which a plugin may be the source of.
    plugins = _find_plugin_problem(query, node)
    problem = "" if plugins else _find_data_problem(query, node)
    own_examples, labels = 0, ""
    if not (plugins or problem):
        reading, private = examples.reading_of_query(query, node), query.get(wire.PRIVATE) is True
        own_examples = examples.count_declared_examples(node, reading, private=private)
        labels = _find_label_problem(query, node)
    description = node_description.NodeDescription(
        partition_id=node.partition_id,
        num_partitions=node.num_partitions,
        own_examples=own_examples,
        code=node_description.code_digest(),
        keeps_state=node.simulated or bool(node.state_dir),
        plugins=plugins,
        data=problem,
        labels=labels,
        noise_anew=not node.simulated,
        reads_run_paths=node.reads_run_paths,
    )
    return Message(description.to_content(), reply_to=message)


def _find_plugin_problem(query: Mapping[str, Any], node: Node) -> str:
    try:
        load_plugins(str(query.get("plugins", "")), node.plugins_folder)
    except errors.ConfigurationError as error:
        return str(error) if error.public else reason_for_server(error, node.simulated)
    return ""


def _find_data_problem(query: Mapping[str, Any], node: Node) -> str:
    """Read the data that a SuperNode would train on as in the first round; say what is wrong.

    The server learns which data they are, and whether they are there; the rest stands in the
    node's own log.
    """
    dataset = str(query.get(wire.DATASET, ""))
    if node.simulated or not (node.dataset or dataset):
        return ""  # a simulated node has the server's
    if node.reads_run_paths and wire.DATA_DIR not in query:
        return ""  # it is asked again, with where they are
    try:
        reading = examples.reading_of_query(query, node)
        if node.dataset:
            data = examples.own_data(node.dataset, reading)
        else:
            data = cached_dataset(
                *node.place_of(dataset, str(query.get(wire.DATA_DIR, ""))), reading
            )
    except errors.BflError as error:
        tell_operator(f"a run is refused, by {node.dataset or dataset}: {error}")
        if error.public:
            return str(error)
        which = "its own data" if node.dataset else f"the run's data set '{dataset}'"
        path = (node.dataset or dataset).partition(":")[2]
        problem = "cannot be used" if path and Path(path).exists() else "are not there"
        return f"{which} {problem}; its own log says what is wrong with them"
    # Of its own data it says in the first round what is left to say when columns are summed.
    if not node.dataset or reading.table_columns == SUMMED:
        for line in data.said:
            tell_operator(line)
    return ""


def _find_label_problem(query: Mapping[str, Any], node: Node) -> str:
    """Say that labels are not the run's; in a deployment the rest stands in the node's own log."""
    classes = query.get(wire.NUM_CLASSES)
    if not node.dataset or classes is None:
        return ""
    data = examples.own_data(node.dataset, examples.reading_of_query(query, node))
    if data.numbered_here:
        return ""  # a table of its own, whose classes are told apart by name
    try:
        examples.check_labels(data.train_labels, int(classes), node.dataset)
    except errors.DataError as error:
        if node.simulated:
            return str(error)
        tell_operator(f"a run is refused: {error}")
        return (
            f"some training labels of its own data are none of the run's {classes} classes, 0 to "
            f"{int(classes) - 1}; its own log says which data"
        )
    names = tuple(query.get(wire.CLASS_NAMES, ()))
    unnamed = any(all(map(str.isdecimal, each)) for each in (names, data.class_names))
    if not unnamed and names != data.class_names:  # else classes are numbers on either side
        tell_operator(
            f"a run is refused: its classes are {', '.join(names)}, and those of {node.dataset} "
            f"{', '.join(data.class_names)}; allowed: the same in the same order (classes.txt)"
        )
        return (
            f"the classes of its own data are not the run's, {few(names)}, in this order; its own "
            "log has them"
        )
    return ""


def describe_table(message: Message, context: Context) -> Message:
    """Answer with the columns and classes of the node's own table; tell what does not fit."""
    node, query = Node.of(context), message.content[wire.CONFIG]
    table = _own_table(node, examples.reading_of_query(query, node))
    if node.private and table.numbered_here:
        problem = "this node has private=true: table-columns has to say what its columns become"
        raise errors.public(errors.ConfigurationError(problem))
    description = node_description.TableDescription.of(table)
    server = node_description.TableDescription.from_content(message.content)
    for problem in node_description.compare_tables(server, {"this client": description})[0]:
        tell_operator(f"a run is refused: {problem}")
    return Message(description.to_content(), reply_to=message)


def add_up_table(message: Message, context: Context) -> Message:
    """Answer with sums over the training rows of the node's own table, masked where updates are."""
    import pandas

    node, config = Node.of(context), message.content[wire.CONFIG]
    task: Any = wire.TrainTask.from_config(config)  # type: ignore[arg-type]
    configuration = cached_configuration(task.configuration, node.plugins_folder)
    refuse_task(task, node, configuration)
    if configuration.hides_measurements:
        problem = "sums over a table are asked of a run with noise"
        raise errors.public(errors.ConfigurationError(problem))
    table = _own_table(
        node, replace(configuration.keys.reading, table_columns=SUMMED, test_sites="")
    )
    rows = pandas.DataFrame(dict(table.train_columns))
    columns = [Column.from_dict(each) for each in from_json(str(config[COLUMNS]))]
    sums = add_up(rows, columns, node.dataset)
    if np.abs(sums).max() > greatest(len(rows)):
        problem = "numbers of its own table are too far from those of the server's"
        raise errors.public(errors.DataError(problem))
    if configuration.exchange.secure_sums:
        masked = read_task(message, node, Equal(), len(rows))
        content = mask_sums(message, context, masked, sums, len(rows))
    else:
        nothing = np.zeros(0, np.float32)
        content = wire.reply_content(Posterior(nothing, nothing, sums), {NUM_EXAMPLES: len(rows)})
    return Message(content, reply_to=message)


def _own_table(node: Node, reading: Reading) -> Dataset:
    table = cached_dataset(node.dataset, "", reading) if node.dataset else None
    if table is None or table.encoding is None:
        problem = "this node is asked for its own table, and has none"
        raise errors.public(errors.ConfigurationError(problem))
    return table
