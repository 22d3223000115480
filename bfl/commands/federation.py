"""``bfl federation``: a federation on real machines set up, changed, and run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bfl import printing
from bfl.commands import check
from bfl.commands.terminal import add_run_config_to, path_argument
from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.deployment import private_files, setup
from bfl.deployment.client_list import ClientList
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.settings import ServerSettings, checked_hosts
from bfl.errors import ConfigurationError, RunError
from bfl.files import given_path

STATE = "state"
Run = Callable[[argparse.Namespace], None]
TO_THE_SERVER = "if the server is elsewhere, it needs {}, and sees it within seconds"


def add_to(federation: argparse.ArgumentParser) -> None:
    """Add the commands of ``bfl federation``."""
    parts = federation.add_subparsers(dest="part", required=True)

    def command(name: str, run: Run, text: str, folder: str) -> argparse.ArgumentParser:
        added = parts.add_parser(name, help=text)
        added.add_argument("folder", type=path_argument, metavar="DIR", help=folder)
        added.set_defaults(run=run)
        return added

    ours = "the federation's folder"
    text = "make an authority, the server's certificate, and a key pair for each client"
    init = command("init", make, text, "a new folder")
    text = "name or address by which clients call the server; repeatable, they are told the first"
    init.add_argument("--host", action="append", required=True, metavar="NAME", help=text)
    text = "the clients' names, such as north,south, or how many: client-0, client-1, ..."
    init.add_argument("--clients", required=True, metavar="NAMES", help=text)
    init.add_argument("--port", type=int, help="the server's port for clients (default: 8443)")
    text = "address on which it listens (default: all, 0.0.0.0)"
    init.add_argument("--bind", metavar="ADDRESS", help=text)
    text = "the SuperLink's port, on loopback (default: 9443)"
    init.add_argument("--superlink-port", type=int, help=text)
    add = command("add-client", add_client, "add a client", ours)
    text = "public key of a pair that the client has made (ssh-keygen -t ecdsa -b 384) and keeps"
    add.add_argument("--public-key", type=path_argument, metavar="FILE", help=text)
    revoke = command("revoke-client", revoke_client, "take a client off the list", ours)
    for each in (add, revoke):
        each.add_argument("name", metavar="NAME", help="the client's name")
    text = "make the server's certificate anew, for the same key"
    renew = command("renew", renew_certificate, text, ours)
    text = "other hosts than before"
    renew.add_argument("--host", action="append", default=[], metavar="NAME", help=text)
    server = command("server", serve, "run the server, until Ctrl-C", "the server's folder")
    client = command("client", serve, "run a client, until Ctrl-C", "the client's folder")
    text = "start a run on the server's machine, and follow it"
    start = command("run", start_run, text, "the folder of a server that runs")
    for each in (server, client, start):
        text = f"where Flower's state is kept (default: {STATE} in the folder)"
        each.add_argument("--state", type=path_argument, metavar="DIR", help=text)
    add_run_config_to(start, "key=value pairs or a TOML file, as for bfl run; repeatable")
    text = "make each client's own model beside it"
    start.add_argument("--baselines", default="", metavar="local", help=text)
    text = "check the folder of the server or of a client"
    checked = command("check", check_folder, text, "the folder")
    add_run_config_to(checked, "the run's: all that it would refuse of the data here is said")


def make(given: argparse.Namespace) -> None:
    """Make a federation's folder."""
    options = {"hosts": given.host, "bind": given.bind, "port": given.port}
    options["superlink-port"] = given.superlink_port
    chosen = {key: value for key, value in options.items() if value is not None}
    settings = ServerSettings.parse(chosen, "bfl federation init")
    folder = setup.init(given.folder, settings, given.clients, datetime.now(UTC))
    print(f"the server's folder is {folder.server}; start it there with ./start.sh")
    print(f"the clients' folders are in {folder.path / 'clients'}; each goes to its machine alone")
    print(f"{folder.authority} signs certificates: keep it off the server and the clients")


def add_client(given: argparse.Namespace) -> None:
    """Let one client more in."""
    folder = FederationFolder(given.folder)
    listed = folder.server / private_files.CLIENTS
    key = given.public_key and given.public_key.read_text(errors="replace")
    client = setup.add_client(given.folder, given.name, key)
    print(f"client {client.name} has partition {client.partition_id}")
    print(f"its folder is {folder.client(client.name)}; {TO_THE_SERVER.format(listed)}")
    many = f"there are {ClientList.read(listed).num_partitions} partitions"
    print(f"{many}: who has fewer in identity.toml needs its new one, and a new start")


def revoke_client(given: argparse.Namespace) -> None:
    """Take a client off the list."""
    client = setup.revoke_client(given.folder, given.name)
    listed = FederationFolder(given.folder).server / private_files.CLIENTS
    print(f"client {client.name} is revoked; {TO_THE_SERVER.format(listed)}")
    vacant = f"partition {client.partition_id} is vacant, and a run waits for all"
    print(f"{vacant}: bfl federation add-client {given.folder} NAME fills it")


def renew_certificate(given: argparse.Namespace) -> None:
    """Make the server's certificate anew."""
    hosts = checked_hosts(given.host) if given.host else ()
    setup.renew(given.folder, hosts, datetime.now(UTC))
    server = FederationFolder(given.folder).server
    print(f"{server / private_files.SERVER_CERTIFICATE} is new; restart the server with it")


def check_folder(given: argparse.Namespace) -> None:
    """Check the folder of the server or of a client, as its start does."""
    from bfl.deployment import client, server

    printing.doing("settings, certificates and data are read")
    if (given.folder / private_files.IDENTITY).is_file():
        identity, node = client.check_client(given.folder, datetime.now(UTC))
        if node.dataset:
            values = {**read_run_config(given.run_config), "dataset": node.dataset}
            values |= {"data-dir": node.data_dir or "", "name": "", "initial-posterior": ""}
            values["test-sites"] = ""  # all of its data are of one site, which trains
            if not given.run_config and node.dataset.startswith("table:"):
                values["model"] = "mlp"  # without a run, nothing is said of the network
            found = check.check_run(values, identity.num_partitions, check_data=False)
            # Nodes agree on the classes of tables before the first round.
            if found and found.numbered_here and not found.encoding:
                raise ConfigurationError(
                    f"client {identity.name}: {found.numbered_here}, which another client may "
                    "number otherwise; allowed: a file classes.txt in a folder, or an array "
                    "class_names in an archive, with all classes of the run in its order"
                )
            if found and not found.encoding:
                print("the run's classes have to be these, in this order, on all machines")
        else:
            print(
                "no data are looked at: node.toml has no dataset, so it takes its part of a run's"
            )
        print(f"client {identity.name}: its folder is complete")
    else:
        _, listed = server.check_server(given.folder, datetime.now(UTC))
        names = ", ".join(each.name for each in listed.clients)
        print(f"server: its folder is complete; it lets in {names or 'nobody'}")
        if given.run_config:
            check.check_run(read_run_config(given.run_config), listed.num_partitions)
        else:
            print("no data are looked at: with a run's --run-config, its test data are")


def serve(given: argparse.Namespace) -> None:
    """Run the server, or a client."""
    from bfl.deployment import client, server

    run = server.serve_federation if given.part == "server" else client.run_client
    run(given.folder, given.state or given.folder / STATE, printing.say)


def start_run(given: argparse.Namespace) -> None:
    """Start a run in a federation whose server runs on this machine, and follow it to its end."""
    from bfl.deployment import processes, run, server
    from bfl.engine.flower import app as flower
    from bfl.experiments.results.run_folder import METRICS, RunFolder
    from bfl.experiments.run import baselines
    from bfl.experiments.run.simulation import made_up_name, with_closing

    if baselines.CENTRAL in (chosen := baselines.baselines_of(given.baselines)):
        raise ConfigurationError("--baselines central takes all data to one place; allowed: local")
    settings = ServerSettings.read(given.folder / private_files.SETTINGS)
    state = (given.state or given.folder / STATE).resolve()
    home, log = state / server.HOME, state / run.RUN_LOG
    app = flower.FlowerApp.own()
    overrides = with_closing(app, read_run_config(given.run_config))
    configuration = resolve(app.run_config(overrides))
    keys = configuration.keys
    clients = ClientList.read(given.folder / private_files.CLIENTS).num_partitions
    printing.doing("the data are read")
    app.load(app.server).check_before_start(configuration, clients, own_data=True)
    if chosen and configuration.exchange.secure_sums:
        raise ConfigurationError(
            f"--baselines {given.baselines}: a client's own model is no sum over clients, and "
            f"exchange is {configuration.exchange.name}; allowed: exchange=direct, or no baselines"
        )
    folder = Path(keys.output_dir).absolute() / (keys.name or made_up_name(configuration))
    # The app runs in a folder of Flower's: its paths are absolute.
    paths: flower.Values = {"output-dir": str(folder.parent), "name": folder.name}
    for key in ("plugins", "dataset", "data-dir", "server-data", "ood-dataset"):
        if value := configuration.values[key]:
            paths[key] = value
    if keys.initial_posterior:
        where = given_path(keys.initial_posterior, "initial-posterior")
        paths["initial-posterior"] = str(where.absolute())
    try:
        with printing.shown(), flower.bundled(app.folder) as code:

            def make(changes: flower.Values) -> None:
                values = app.for_flwr_run({**overrides, **paths, **changes})
                environment, flwr = processes.flower_environment(home), processes.command("flwr")
                part = f"baseline {changes['name']}" if changes else ""
                run.follow_run(flwr, code, server.CONNECTION, environment, values, log, part)

            run.wait_for_server(settings.superlink_port, home)
            printing.tell(
                f"run {folder.name}: its code is sent to the server, which starts a process for it"
            )
            make({})
            if chosen:
                baselines.make_baselines(
                    RunFolder(folder), chosen, lambda changes, _: make(changes), printing.tell
                )
    except (RunError, KeyboardInterrupt) as error:
        if not (folder / "config.toml").is_file():  # it has not begun
            if isinstance(error, KeyboardInterrupt):
                error.add_note("the run had not begun, and nothing is kept of it")
            raise
        goes_on = f"--run-config 'name=\"{folder.name}\" resume=true'"
        advice = f"it goes on after its last finished round by the same command with {goes_on}"
        if (results := RunFolder(folder)).holds(METRICS):
            advice = (
                f"the run is finished, and its results are in {results.path}; finished baselines "
                f"are kept, and the same command with {goes_on} makes the others"
            )
        if isinstance(error, RunError):
            raise RunError(f"{error}; {advice}") from error
        error.add_note(advice)
        raise
