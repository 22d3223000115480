"""Answers of a node before the first round: who it is, and why it cannot take part."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any

from flwr.app import Context, Message

from bfl import errors
from bfl.data.datasets import Dataset, cached_dataset
from bfl.experiments.run.network import check_images
from bfl.federation.node_description import (
    PERSONAL_MODELS,
    NodeDescription,
    code_digest,
)
from bfl.federation.wire import CLASS_NAMES, CONFIG, DATA_DIR, DATASET, NUM_CLASSES, PRIVATE
from bfl.learning.models import create_architecture
from bfl.plugins import load_plugins
from bfl.texts import few
from clients.examples import (
    check_labels,
    declared_examples,
    own_data,
    reading_of_query,
)
from clients.node import Node
from clients.process import reason_for_server, reports_errors


@reports_errors
def describe(message: Message, context: Context) -> Message:
    """Describe this node: its partition, its own number of examples, and its code."""
    node = Node.of(context)
    query: Any = message.content.get(CONFIG, {})
    # Before the data, which a plugin may be the source of.
    data, plugins, problem = None, _find_plugin_problem(query, node), ""
    if not plugins:
        data, problem = _read_data(query, node)
    own_examples, labels, personal_model = 0, "", ""
    if not (plugins or problem):
        reading, private = reading_of_query(query, node), query.get(PRIVATE) is True
        own_examples = declared_examples(node, reading, private=private)
        labels = _find_label_problem(query, node)
        personal_model = _find_model_problem(query, node, data)
    description = NodeDescription(
        partition_id=node.partition_id,
        num_partitions=node.num_partitions,
        own_examples=own_examples,
        code=code_digest(),
        allows_attack=node.allows_attack,
        keeps_state=node.simulated or bool(node.state_dir),
        plugins=plugins,
        data=problem,
        labels=labels,
        personal_model=personal_model,
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


def _read_data(query: Mapping[str, Any], node: Node) -> tuple[Dataset | None, str]:
    """Return the data that a SuperNode would train on, read as in the first round, or a problem.

    The server learns which data cannot be had; the rest stands in the node's own log.
    """
    dataset = str(query.get(DATASET, ""))
    if node.simulated or not (node.dataset or dataset):
        return None, ""  # a simulated node has the server's
    if node.reads_run_paths and DATA_DIR not in query:
        return None, ""  # it is asked again, with where they are
    try:
        reading = reading_of_query(query, node)
        if node.dataset:
            data = own_data(node.dataset, reading)
        else:
            data = cached_dataset(*node.place_of(dataset, str(query.get(DATA_DIR, ""))), reading)
    except errors.BflError as error:
        if error.public:
            return None, str(error)
        traceback.print_exception(error)
        which = "its own data" if node.dataset else f"the run's data set '{dataset}'"
        return None, f"{which} cannot be had there; its own log says where it has looked"
    for line in data.said:
        print(line, file=sys.stderr)
    return data, ""


def _find_label_problem(query: Mapping[str, Any], node: Node) -> str:
    """Say that labels are not the run's; in a deployment the rest stands in the node's own log."""
    classes = query.get(NUM_CLASSES)
    if not node.dataset or classes is None:
        return ""
    reading = reading_of_query(query, node)
    data = own_data(node.dataset, reading)
    if cached_dataset(node.dataset, "", reading).numbered_here:
        return ""  # a table of its own, whose classes are told apart by name
    try:
        check_labels(data.train_labels, int(classes), node.dataset)
    except errors.DataError as error:
        if node.simulated:
            return str(error)
        traceback.print_exception(error)
        return (
            f"some training labels of its own data are none of the run's {classes} classes, 0 to "
            f"{int(classes) - 1}; its own log says which data"
        )
    names = tuple(query.get(CLASS_NAMES, ()))
    unnamed = any(all(map(str.isdecimal, each)) for each in (names, data.class_names))
    if not unnamed and names != data.class_names:  # else classes are numbers on either side
        print(f"classes of {node.dataset}: {', '.join(data.class_names)}", file=sys.stderr)
        return (
            f"the classes of its own data are not the run's, {few(names)}, in this order; its own "
            "log has them"
        )
    return ""


def _find_model_problem(query: Mapping[str, Any], node: Node, data: Dataset | None) -> str:
    word = node.personal_model
    if data is not None and word and query.get(PERSONAL_MODELS) is True:
        try:
            check_images(word, create_architecture(word), data.image_shape)
        except errors.ConfigurationError as error:
            return f"personal-model in its node configuration: {error}"
    return ""
