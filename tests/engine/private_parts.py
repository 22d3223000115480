"""What is used of Flower and Ray outside their public modules, and what it must offer."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bfl.engine.flower import CLIENT_RAISED, NO_REPLY, log
from bfl.engine.flower.grid import hand_out

FLEET = "flwr.server.superlink.fleet.vce"


@dataclass(frozen=True)
class Part:
    """A private part.

    Attributes:
        module: Where it is.
        name: What it is called there.
        file: The file of ours to change when it is not what it was.
        parameters: The arguments that it is called with, by name.
        offers: Attributes that it or its instances have.
        looks_up: Names that its code looks up in its module when it runs, since we exchange them,
            or that it calls on what we give it.
        is_as: Returns whether it is otherwise what it was.
    """

    module: str
    name: str
    file: str
    parameters: tuple[str, ...] = ()
    offers: tuple[str, ...] = ()
    looks_up: tuple[str, ...] = ()
    is_as: Callable[[Any], bool] = lambda part: True

    def problem(self) -> str:
        """Return what is wrong with it; empty: nothing."""
        try:
            module = importlib.import_module(self.module)
            with suppress(ImportError):  # the part may be a module itself
                importlib.import_module(f"{self.module}.{self.name}")
            part = getattr(module, self.name)
        except (ImportError, AttributeError):
            return "is not there"
        if self.parameters and (missing := set(self.parameters) - _parameters(part)):
            return f"takes no {', '.join(sorted(missing))}"
        if missing := {name for name in self.offers if name not in _attributes(part)}:
            return f"has no {', '.join(sorted(missing))}"
        if self.looks_up and (missing := set(self.looks_up) - set(_names(_code(part)))):
            return f"does not use {', '.join(sorted(missing))}"
        return "" if self.is_as(part) else "is not what it was"


def _parameters(part: Any) -> set[str]:
    # A remote class of Ray's is called through its actors.
    inner = getattr(part, "__ray_metadata__", None)
    return set(inspect.signature(inner.modified_class if inner else part).parameters)


def _attributes(part: Any) -> set[str]:
    """Return the attributes of a part, and those that its instances get when they are made."""
    made = _names(part.__init__.__code__) if inspect.isfunction(part.__init__) else []
    fields = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []
    return {*dir(part), *dir(type(part)), *made, *fields}


def _code(part: Any) -> CodeType:
    return (part.process_message if inspect.isclass(part) else part).__code__


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names and the texts in a function's code, and in what is defined inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        else:
            yield from (c for c in (constant, *_items(constant)) if isinstance(c, str))


def _items(constant: object) -> tuple[object, ...]:
    return constant if isinstance(constant, tuple) else ()


MESSAGES = "bfl/engine/flower/replies.py"
ACTORS = "bfl/engine/flower/actors.py"
SIMULATION = "bfl/engine/flower/simulation.py"
HANDING_OUT = "bfl/engine/flower/grid.py"
GRID = "bfl/engine/flower/grid.py"
REPLIES = "bfl/engine/flower/replies.py"
APP = "bfl/engine/flower/app.py"
RAY = "bfl/engine/ray_cluster.py"
WARM, WARM_WORKER = "bfl/engine/flower/warm.py", "bfl/engine/flower/warm_worker.py"
SUPERLINK = "bfl/engine/flower/superlink.py"
PAUSES, WARM_NODE = "bfl/engine/flower/pauses.py", "bfl/engine/flower/warm_node.py"
OBJECTS = "bfl/engine/flower/object_store.py"
OBJECT_TABLES = "flwr.supercore.state.schema.objectstore_models"
INFLATABLE = "flwr.supercore.inflatable.inflatable_object"
TRANSFERS = "flwr.supercore.inflatable.inflatable_utils"

RUN_SIMULATION = (
    *("num_supernodes", "exit_event", "server_app_attr", "client_app_attr", "run", "is_app"),
    *("server_app_context", "backend_config", "app_dir", "verbose_logging"),
)
POOL = ("submit", "fetch_result_and_return_actor_to_pool", "add_actor_back_to_pool")

SECURE_BENCHMARK = "benchmarks/secure_aggregation.py"
SECAGG = "flwr.common.secure_aggregation.quantization"
SECAGG_PARAMETERS = ("clipping_range", "target_range")

PARTS = (
    # What a benchmark measures beside ours.
    Part(SECAGG, "quantize", SECURE_BENCHMARK, ("parameters", *SECAGG_PARAMETERS)),
    Part(SECAGG, "dequantize", SECURE_BENCHMARK, ("quantized_parameters", *SECAGG_PARAMETERS)),
    # The simulation, and what is exchanged in it.
    Part("flwr.simulation.run_simulation", "_run_simulation", SIMULATION, RUN_SIMULATION),
    Part(
        "flwr.simulation.run_simulation",
        "_main_loop",
        GRID,
        looks_up=("InMemoryGrid", "An error was encountered. Ending simulation."),
    ),
    Part(
        "flwr.supercore.telemetry",
        "EventType",
        SIMULATION,
        offers=("PYTHON_API_RUN_SIMULATION_LEAVE",),
    ),
    Part(
        "flwr.superlink.grid",
        "InMemoryGrid",
        GRID,
        parameters=("state_factory",),
        offers=("get_node_ids", "push_messages", "pull_messages"),
    ),
    Part("flwr.superlink.grid.inmemory_grid", "InMemoryGrid", GRID),
    Part(
        "flwr.superlink.grid.http_grid",
        "HttpGrid",
        REPLIES,
        parameters=("token",),
        offers=("_runtime_client", "node", "run", "_client", "_run"),
    ),
    Part(
        "flwr.supercore.runtime",
        "RuntimeHttpClient",
        REPLIES,
        offers=("PullMessages", "PullObject", "ConfirmMessageReceived"),
    ),
    Part("flwr.proto", "runtime_pb2", REPLIES, offers=("PullAppMessagesRequest",)),
    Part("flwr.proto", "message_pb2", REPLIES, offers=("ConfirmMessageReceivedRequest",)),
    Part(
        "flwr.supercore.inflatable.inflatable_protobuf_utils",
        "make_pull_object_fn_protobuf",
        REPLIES,
        parameters=("pull_object_protobuf", "node", "run_id"),
        looks_up=("ObjectPullError", "ObjectUnavailableError"),
    ),
    Part("flwr.supercore.inflatable", "inflatable_utils", REPLIES),
    Part("flwr.supercore.inflatable.inflatable_object", "iterate_object_tree", REPLIES, ("tree",)),
    Part(TRANSFERS, "pull_objects", REPLIES, parameters=("object_ids", "pull_object_fn")),
    Part(
        TRANSFERS,
        "inflate_object_from_contents",
        REPLIES,
        parameters=("object_id", "object_contents"),
    ),
    # Actors.
    Part(
        "flwr.simulation.ray_transport.ray_actor",
        "BasicActorPool",
        ACTORS,
        parameters=("actor_type", "client_resources", "actor_kwargs"),
        offers=(*POOL, "add_actors_to_pool", "pool", "num_actors", "actors_capacity"),
    ),
    Part(
        "flwr.simulation.ray_transport.ray_actor",
        "ClientAppActor",
        ACTORS,
        parameters=("on_actor_init_fn",),
    ),
    Part(f"{FLEET}.backend", "raybackend", ACTORS, offers=("RayBackend",)),
    Part(
        f"{FLEET}.backend.raybackend",
        "RayBackend",
        ACTORS,
        offers=("build", "terminate", "num_workers", "app_fn", "pool"),
        looks_up=POOL,
    ),
    Part(f"{FLEET}.vce_api", "start_vce", ACTORS, looks_up=("RayBackend",)),
    # Handing out.
    Part(f"{FLEET}", "vce_api", HANDING_OUT, offers=("add_messages_to_queue",)),
    Part(f"{FLEET}.vce_api", "run_api", HANDING_OUT, looks_up=("add_messages_to_queue",)),
    Part(
        f"{FLEET}.vce_api",
        "add_messages_to_queue",
        HANDING_OUT,
        is_as=lambda theirs: (
            list(inspect.signature(theirs).parameters)
            == list(inspect.signature(hand_out).parameters)
        ),
    ),
    Part(
        "flwr.server.superlink.linkstate",
        "InMemoryLinkState",
        HANDING_OUT,
        offers=("lock", "message_ins_store"),
    ),
    # Identities.
    Part("flwr.common.constant", "SUPERLINK_NODE_ID", MESSAGES),
    Part(
        "flwr.common.constant",
        "ErrorCode",
        MESSAGES,
        is_as=lambda codes: (
            (codes.UNKNOWN, codes.CLIENT_APP_RAISED_EXCEPTION) == (NO_REPLY, CLIENT_RAISED)
        ),
    ),
    Part("flwr.supercore.constant", "NOOP_FEDERATION_ID", MESSAGES),
    Part(
        "flwr.supercore.run",
        "Run",
        MESSAGES,
        offers=("create_empty", "run_id", "primary_task_id", "federation_id", "override_config"),
    ),
    Part(
        "flwr.supercore.task_identity",
        "TaskIdentity",
        MESSAGES,
        offers=("task_id", "run_id", "node_id"),
    ),
    Part(
        "flwr.app",
        "Metadata",
        MESSAGES,
        offers=("_message_id", "delivered_at"),
        is_as=lambda metadata: metadata.delivered_at.fset is not None,
    ),
    Part(
        "flwr.supercore.logger",
        "FLOWER_LOGGER",
        MESSAGES,
        is_as=lambda logger: logger.log == log,
    ),
    # Apps.
    Part(
        "flwr.supercore.object_ref",
        "load_app",
        APP,
        parameters=("module_attribute_str", "error_type", "project_dir"),
    ),
    Part("flwr.cli.build", "build_fab_from_disk", "tests/deployment/test_bundle.py"),
    Part("flwr.cli.build", "build", "tests/deployment/test_bundle.py", parameters=("app",)),
    Part("flwr.supernode", "fleet_http_client", "tests/deployment/test_proxy.py"),
    # The process that plays a SuperNode's tasks.
    Part("flwr.proto.runtime_pb2", "AcquireTaskRequest", WARM),
    Part("flwr.supercore.constant", "TaskType", WARM, offers=("CLIENT_APP",)),
    Part(
        "flwr.supercore.interceptors",
        "RuntimeVersionHttpInterceptor",
        WARM,
        parameters=("component_name",),
    ),
    Part(
        "flwr.supercore.interceptors",
        "SuperExecAuthHttpInterceptor",
        WARM,
        parameters=("master_secret", "protected_methods"),
    ),
    Part(
        "flwr.supercore.runtime",
        "RuntimeHttpClient",
        WARM,
        offers=("from_server_address", "AcquireTask", "PushTaskOutput"),
    ),
    Part(
        "flwr.supernode.runtime.run_clientapp",
        "run_clientapp",
        WARM_WORKER,
        parameters=("runtime_api_address", "token", "insecure", "certificates"),
        looks_up=("flwr_exit", "pull_task_input", "install_from_fab", "Error", "hash_str"),
    ),
    Part("flwr.common.constant", "APP_DIR", WARM_WORKER),
    Part("flwr.supercore.utils", "get_flwr_home", WARM_WORKER),
    Part(
        "flwr.supercore.fab",
        "Fab",
        "tests/engine/test_warm_worker.py",
        parameters=("hash_str", "content", "verifications"),
    ),
    Part(
        "flwr.supercore.exit.exit_handler",
        "trigger_exit_handlers",
        WARM_WORKER,
        parameters=("run_before_force_exit",),
    ),
    Part("flwr.supercore.interceptors", "RuntimeTokenHttpInterceptor", WARM, parameters=("token",)),
    Part("flwr.proto.runtime_pb2", "PushTaskOutputRequest", WARM),
    Part("flwr.common.constant", "SubStatus", WARM, offers=("FAILED",)),
    Part(TRANSFERS, "pull_objects", PAUSES, parameters=("initial_backoff",)),
    Part(TRANSFERS, "pull_and_inflate_object_from_tree", PAUSES, parameters=("initial_backoff",)),
    Part(
        "flwr.supernode.start_client_internal",
        "start_client_internal",
        WARM_NODE,
        looks_up=("time", "sleep"),
    ),
    Part("flwr.supernode.cli.flower_supernode", "flower_supernode", WARM_NODE),
    Part(
        "flwr.supercore.sql_mixin",
        "SQLITE_PRAGMAS",
        SUPERLINK,
        is_as=lambda pragmas: "busy_timeout" in dict(pragmas),
    ),
    Part(
        "flwr.supercore.sql_mixin",
        "_set_sqlite_pragmas",
        SUPERLINK,
        looks_up=("SQLITE_PRAGMAS",),
    ),
    Part("flwr.superlink.cli", "flower_superlink", SUPERLINK),
    Part(
        "flwr.supercore.object_store.sql_object_store",
        "SqlObjectStore",
        OBJECTS,
        offers=("_mutation_session", "get", "preregister"),
    ),
    Part(OBJECT_TABLES, "ObjectChild", OBJECTS, offers=("parent_id", "child_id")),
    Part(OBJECT_TABLES, "StoredObject", OBJECTS, offers=("object_id", "ref_count")),
    Part(INFLATABLE, "iterate_object_tree", OBJECTS, ("tree",)),
    Part(INFLATABLE, "get_object_children_ids_from_object_content", OBJECTS),
    Part("flwr.proto.message_pb2", "ObjectTree", OBJECTS),
    Part("flwr.supercore.object_store.object_store_factory", "SqlObjectStore", SUPERLINK),
    Part(
        "flwr.supercore.object_store.sql_object_store",
        "SqlObjectStore",
        "tests/engine/test_superlink.py",
        parameters=("database_path",),
        offers=("initialize", "session"),
    ),
    # Ray.
    Part("ray._private", "worker", RAY, offers=("_global_node",)),
    # What Ray reads of the environment when it is imported can be read again.
    Part("ray._raylet", "AuthenticationTokenLoader", RAY, offers=("instance", "reset_cache")),
    Part("ray._raylet", "Config", RAY, offers=("initialize",)),
    Part("ray._private", "ray_constants", RAY, offers=("ENABLE_RAY_CLUSTER",)),
    Part(
        "ray._private.services",
        "get_node_ip_address",
        RAY,
        looks_up=("ray_constants", "ENABLE_RAY_CLUSTER"),
    ),
    Part("ray._private.node", "Node", RAY, offers=("all_processes",)),
    Part("ray._private.services", "ProcessInfo", RAY, offers=("process",)),
    Part(
        "ray._private.ray_constants",
        "PROCESS_TYPE_RAYLET",
        RAY,
        is_as=lambda name: bool(name == "raylet"),
    ),
)
