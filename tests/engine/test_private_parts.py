"""What is used of Flower and Ray outside their public modules: that it is there, as it was.

A new release of either fails here first; the message names the file of ours to change. What is
public may be used anywhere, everything else only in the files of ``DOORS``.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from bfl.engine.flower import CLIENT_RAISED, NO_REPLY, hand_out, log

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("bfl", "strategies", "clients", "benchmarks", "scripts", "tests")
DOORS = (
    *("bfl/engine/flower/", "bfl/engine/ray_cluster.py"),
    *("tests/engine/", "tests/deployment/"),
    # Measured beside ours, and no part of the product.
    "benchmarks/secure_aggregation.py",
)
PUBLIC = (
    *("flwr.app", "flwr.serverapp", "flwr.serverapp.strategy"),
    *("flwr.clientapp", "flwr.clientapp.mod"),
)
ATTRIBUTES = ("_message_id", "delivered_at", "message_ins_store", "_global_node", "all_processes")
"""Private attributes of objects that are public, or are had from a private part."""

FLEET, INFLATABLE = "flwr.server.superlink.fleet.vce", "flwr.supercore.inflatable"
POOL = "submit fetch_result_and_return_actor_to_pool add_actor_back_to_pool"

TAKES = {
    "flwr.common.secure_aggregation.quantization.quantize": (
        "parameters clipping_range target_range"
    ),
    "flwr.common.secure_aggregation.quantization.dequantize": (
        "quantized_parameters clipping_range target_range"
    ),
    "flwr.simulation.run_simulation._run_simulation": (
        "num_supernodes exit_event server_app_attr client_app_attr run is_app server_app_context "
        "backend_config app_dir verbose_logging"
    ),
    "flwr.superlink.grid.InMemoryGrid": "state_factory",
    "flwr.superlink.grid.http_grid.HttpGrid": "token",
    f"{INFLATABLE}.inflatable_protobuf_utils.make_pull_object_fn_protobuf": (
        "pull_object_protobuf node run_id"
    ),
    f"{INFLATABLE}.inflatable_object.iterate_object_tree": "tree",
    f"{INFLATABLE}.inflatable_utils.pull_objects": "object_ids pull_object_fn initial_backoff",
    f"{INFLATABLE}.inflatable_utils.pull_and_inflate_object_from_tree": "initial_backoff",
    f"{INFLATABLE}.inflatable_utils.inflate_object_from_contents": "object_id object_contents",
    "flwr.simulation.ray_transport.ray_actor.BasicActorPool": (
        "actor_type client_resources actor_kwargs"
    ),
    "flwr.simulation.ray_transport.ray_actor.ClientAppActor": "on_actor_init_fn",
    "flwr.cli.build.build": "app",
    "flwr.supercore.interceptors.RuntimeVersionHttpInterceptor": "component_name",
    "flwr.supercore.interceptors.RuntimeTokenHttpInterceptor": "token",
    "flwr.supercore.interceptors.SuperExecAuthHttpInterceptor": "master_secret protected_methods",
    "flwr.supernode.runtime.run_clientapp.run_clientapp": (
        "runtime_api_address token insecure certificates"
    ),
    "flwr.supercore.fab.Fab": "hash_str content verifications",
    "flwr.supercore.exit.exit_handler.trigger_exit_handlers": "run_before_force_exit",
    "flwr.supercore.object_store.sql_object_store.SqlObjectStore": "database_path",
}
"""Parameters by which parts are called."""

HAS = {
    "flwr.supercore.telemetry.EventType": "PYTHON_API_RUN_SIMULATION_LEAVE",
    "flwr.superlink.grid.InMemoryGrid": "get_node_ids push_messages pull_messages",
    "flwr.superlink.grid.http_grid.HttpGrid": "_runtime_client node run _client _run",
    "flwr.supercore.runtime.RuntimeHttpClient": (
        "PullMessages PullObject ConfirmMessageReceived from_server_address AcquireTask "
        "PushTaskOutput"
    ),
    "flwr.proto.runtime_pb2": "PullAppMessagesRequest",
    "flwr.proto.message_pb2": "ConfirmMessageReceivedRequest",
    "flwr.simulation.ray_transport.ray_actor.BasicActorPool": (
        f"{POOL} add_actors_to_pool pool num_actors actors_capacity"
    ),
    f"{FLEET}.backend.raybackend.RayBackend": "build terminate num_workers app_fn pool",
    f"{FLEET}.vce_api": "add_messages_to_queue",
    "flwr.server.superlink.linkstate.InMemoryLinkState": "lock message_ins_store",
    "flwr.supercore.run.Run": "create_empty run_id primary_task_id federation_id override_config",
    "flwr.supercore.task_identity.TaskIdentity": "task_id run_id node_id",
    "flwr.app.Metadata": "_message_id delivered_at",
    "flwr.supercore.constant.TaskType": "CLIENT_APP",
    "flwr.common.constant.SubStatus": "FAILED",
    "flwr.supercore.object_store.sql_object_store.SqlObjectStore": (
        "_mutation_session get preregister initialize session"
    ),
    "flwr.supercore.state.schema.objectstore_models.ObjectChild": "parent_id child_id",
    "flwr.supercore.state.schema.objectstore_models.StoredObject": "object_id ref_count",
    "flwr.supercore.object_store.object_store_factory": "SqlObjectStore",
    "ray._private.worker": "_global_node",
    "ray._private.node.Node": "all_processes",
    "ray._private.services.ProcessInfo": "process",
    # What Ray reads of the environment when it is imported can be read again.
    "ray._raylet.AuthenticationTokenLoader": "instance reset_cache",
    "ray._raylet.Config": "initialize",
}
"""Attributes that parts or their instances have."""

LOOKS_UP = {
    "flwr.simulation.run_simulation._main_loop": (
        "InMemoryGrid|An error was encountered. Ending simulation."
    ),
    f"{INFLATABLE}.inflatable_protobuf_utils.make_pull_object_fn_protobuf": (
        "ObjectPullError|ObjectUnavailableError"
    ),
    f"{FLEET}.backend.raybackend.RayBackend.process_message": POOL.replace(" ", "|"),
    f"{FLEET}.vce_api.start_vce": "RayBackend",
    f"{FLEET}.vce_api.run_api": "add_messages_to_queue",
    "flwr.supernode.runtime.run_clientapp.run_clientapp": (
        "flwr_exit|pull_task_input|install_from_fab|Error|hash_str"
    ),
    "flwr.supernode.start_client_internal.start_client_internal": "time|sleep",
    "flwr.supercore.sql_mixin._set_sqlite_pragmas": "SQLITE_PRAGMAS",
    "ray._private.services.get_node_ip_address": "ray_constants|ENABLE_RAY_CLUSTER",
}
"""What a function looks up in its module when it runs, as we exchange it, or calls on ours."""

IS: dict[str, Callable[[Any], bool]] = {
    f"{FLEET}.vce_api.add_messages_to_queue": (
        lambda theirs: _parameters(theirs) == _parameters(hand_out)
    ),
    "flwr.common.constant.ErrorCode": (
        lambda codes: (
            (codes.UNKNOWN, codes.CLIENT_APP_RAISED_EXCEPTION) == (NO_REPLY, CLIENT_RAISED)
        )
    ),
    "flwr.app.Metadata": lambda metadata: metadata.delivered_at.fset is not None,
    "flwr.supercore.logger.FLOWER_LOGGER": lambda logger: logger.log == log,
    "flwr.supercore.sql_mixin.SQLITE_PRAGMAS": lambda pragmas: "busy_timeout" in dict(pragmas),
    "ray._private.ray_constants.PROCESS_TYPE_RAYLET": lambda name: bool(name == "raylet"),
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER": lambda enabled: isinstance(enabled, bool),
}
"""What parts are like otherwise."""


def part(path: str) -> Any:
    """Return what has a dotted path: a module, or what is in one."""
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ImportError:
        return getattr(part(module), name)


def _parameters(of: Any) -> list[str]:
    # A remote class of Ray's is called through its actors.
    inner = getattr(of, "__ray_metadata__", None)
    return list(inspect.signature(inner.modified_class if inner else of).parameters)


def _attributes(of: Any) -> set[str]:
    """Return the attributes of a part, and those that its instances get when they are made."""
    made = _names(of.__init__.__code__) if inspect.isfunction(of.__init__) else []
    return {*dir(of), *dir(type(of)), *made, *getattr(of, "__dataclass_fields__", ())}


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names and the texts in a function's code, and in what is defined inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        else:
            items = constant if isinstance(constant, tuple) else (constant,)
            yield from (each for each in items if isinstance(each, str))


@pytest.mark.parametrize("path", dict.fromkeys((*TAKES, *HAS, *LOOKS_UP, *IS)))
def test_each_private_part_is_what_it_was(path: str) -> None:
    found, library = part(path), path.partition(".")[0]
    where = f"{library} {version(library)}: {path}"
    if path in TAKES:
        assert not set(TAKES[path].split()) - set(_parameters(found)), where
    assert not set(HAS.get(path, "").split()) - _attributes(found), where
    if path in LOOKS_UP:
        assert not set(LOOKS_UP[path].split("|")) - set(_names(found.__code__)), where
    assert path not in IS or IS[path](found), where


def private_uses(text: str) -> set[tuple[str, str]]:
    """Return what a module uses of Flower and Ray that is not public, as (module, name)."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(flwr|ray)(\.\w+)+", node.value):
                found.add((node.value, ""))  # a module that is imported, or looked for, by its name
            if node.value in ATTRIBUTES:
                found.add(("", node.value))
        elif isinstance(node, ast.Attribute):
            module, _, name = ast.unparse(node).rpartition(".")
            if re.fullmatch(r"flwr(\.\w+)+|ray(\.\w+)*\._\w+", module):
                found.add((module, name))
            if node.attr in ATTRIBUTES:
                found.add(("", node.attr))
    return {(module, name) for module, name in found if _is_private(module, name)}


def _is_private(module: str, name: str) -> bool:
    if not module:
        return True
    if module in PUBLIC:
        return bool(name) and name not in importlib.import_module(module).__all__
    if re.match(r"ray(\.|$)", module):
        return "._" in f"{module}.{name}"
    known = {("flwr", ""), ("flwr.simulation", "run_simulation")}
    return bool(re.match(r"flwr(\.|$)", module)) and (module, name) not in known


def _modules() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.slow
def test_private_parts_are_used_behind_the_door_only() -> None:
    found = {
        (where, *use)
        for path in _modules()
        if not (where := path.relative_to(ROOT).as_posix()).startswith(DOORS)
        for use in private_uses(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_all_that_is_used_is_there() -> None:
    attributes = set(" ".join(HAS.values()).split())
    for path in (p for p in _modules() if p.relative_to(ROOT).as_posix().startswith("bfl/engine")):
        for module, name in private_uses(path.read_text(encoding="utf-8")):
            if module:
                part(f"{module}.{name}".rstrip("."))
            else:
                assert name in attributes, f"{path.name}: {name}"
