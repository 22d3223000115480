"""The ServerApp: a run from its configuration to its folder."""

from __future__ import annotations

from dataclasses import replace

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from bfl.configuration import Configuration, resolve
from bfl.data.datasets import cached_dataset
from bfl.data.datasets.reading import SUMMED
from bfl.engine.run import run_of
from bfl.errors import ConfigurationError
from bfl.experiments.results import environment as machine
from bfl.experiments.results import run_folder as files
from bfl.experiments.results.table import ProgressReport
from bfl.experiments.run.network import given_posterior
from bfl.experiments.run.resume import Checkpoint, Checkpoints, open_run
from bfl.experiments.run.simulation import check_table, made_up_name
from bfl.federation.outgoing import is_private
from bfl.printing import doing, print_anywhere
from strategies import privacy
from strategies.application import data, evaluation, preflight, tables
from strategies.application.final_evaluation import finish
from strategies.application.pretraining import pretrain
from strategies.application.rounds import FederationRun
from strategies.federation import Federation, discover
from strategies.method import Method


class FederationApp(ServerApp):
    """The ServerApp, which an engine of bfl's may ask before it starts."""

    check_before_start = staticmethod(preflight.check_before_start)


app = FederationApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that Flower's run configuration describes."""
    run_federation(grid, resolve(context.run_config))


def run_federation(grid: Grid, configuration: Configuration) -> files.RunFolder:
    """Run a federation as configured and return the folder that holds its results.

    Raises:
        ConfigurationError: Something configured does not fit the data or the nodes; nothing has
            been trained.
        RunError: The federation could not go on.
        DataError: The data are not what they should be.
    """
    print_anywhere()
    keys, engine, simulated = configuration.keys, run_of(grid), hasattr(grid, "engine_run")
    with ProgressReport(keys.rounds, engine.console, verbose=engine.verbose) as progress:
        if not simulated:  # who simulates has said it
            progress.say(f"{keys.dataset}; {configuration.method}")

        doing("the data are read and the network is built")
        # The data set, and the network, which is built while the clients' processes start.
        whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
        check_table(configuration, whole)
        privacy.check_privacy(configuration)
        network, summing = None, tables.can_sum_columns(configuration, whole)
        if not summing:
            network = evaluation.build_network(configuration, whole, engine.client_threads)

        doing("clients start and say what they have")
        # The nodes, and what each of them has.
        federation = discover(
            grid,
            keys.clients,
            keys.node_timeout,
            plugins=keys.plugins,
            private=is_private(configuration.outgoing),
            # With heads of their own, clients have classes of their own.
            num_classes=None if configuration.shared.partial else whole.num_classes,
            class_names=() if configuration.shared.partial else whole.class_names,
            dataset=(
                keys.dataset,
                keys.data_dir,
                replace(keys.reading, table_columns=SUMMED) if summing else keys.reading,
            ),
        )
        check_attackers(configuration, federation)
        check_states(configuration, federation)
        configuration = configuration.with_known(clients=federation.size)
        warnings, say = list[str](), progress.say
        if summing and (
            columns := tables.sum_columns(configuration, whole, grid, federation, say, warnings)
        ):
            configuration = configuration.with_known(table_columns=columns)
            keys = configuration.keys
            whole = cached_dataset(keys.dataset, keys.data_dir, keys.reading)
        if not network:
            network = evaluation.build_network(configuration, whole, engine.client_threads)
        divided = data.divide(configuration, whole, federation)
        steps = keys.rounds * keys.local_epochs * -(-max(divided.sizes) // keys.batch_size)
        warnings += data.warnings_of_data(configuration, divided.dataset)
        if not any(closing.moves_head for closing in configuration.closing):
            warnings += configuration.optimizer.warnings(steps)
        tested, nodes = divided.dataset, sum(n > 0 for n in federation.own_examples.values())
        if nodes:
            progress.say(
                f"{nodes} clients train on data of their own; {tested.name} has "
                f"{len(tested.test_labels)} examples to test on"
            )
        elif not simulated:
            progress.say(f"{federation.size} clients, {configuration.partition.name} partition")
        for text in warnings:
            progress.say(text)

        # What evaluates, and what the first round begins with.
        from bfl.experiments.run.evaluator import Evaluator

        own = divided.own
        evaluator = Evaluator(configuration, divided.dataset, network=network, server_data=own)
        privacy.check_moving_statistics(configuration, evaluator.manifest)
        name = keys.name or made_up_name(configuration)
        folder = files.RunFolder.named(keys.output_dir, name)
        checkpoint = Checkpoints(folder).latest() if keys.resume else None
        initial = configuration.prior.first_posterior(evaluator.initial)
        if keys.initial_posterior and not checkpoint:
            initial = given_posterior(keys.initial_posterior, evaluator.manifest)
            progress.say(f"begins with posterior {initial.digest()} of {keys.initial_posterior}")

        # The run's folder, the rounds that are left, and the end.
        environment = {**machine.describe_environment(), machine.STARTED: machine.time_now()}
        described = divided.describe(configuration)
        described |= {"names": federation.names} if all(federation.names) else {}
        recorded = (environment, divided.digests(), described)
        with open_run(configuration, name, *recorded) as (folder, checkpoint):
            progress.say(f"{federation.size} clients; the run's folder is {folder.path}")
            backend = "" if engine.client_threads is None else "serial"
            advice = describe_resumption(folder, backend)
            if not (engine.console and engine.console.quiet):  # a baseline's is its run's
                engine.advice = advice
            evaluation.write_network(folder, configuration, divided.dataset)
            folder.write_json(files.PARTITION, described)
            for text in () if configuration.hides_measurements else warnings:
                folder.append_warning(text)
            run = FederationRun(
                configuration=configuration,
                grid=grid,
                federation=federation,
                results=folder,
                evaluator=evaluator,
                data=divided,
                progress=progress,
                advice=advice,
            )
            if checkpoint:
                progress.say(f"resumes after round {checkpoint.server_round}")
            elif keys.pretrain_examples:
                posterior = pretrain(run, initial)
                state = Method.of(configuration).first_state(posterior, federation.size)
                checkpoint = Checkpoint(0, posterior, state.to_arrays())
                run.checkpoints.save(checkpoint)
            finish(run, *run.make_rounds(checkpoint, initial))
    return folder


def check_attackers(configuration: Configuration, federation: Federation) -> None:
    """Refuse hostile clients where not all are simulated."""
    if not federation.simulated and configuration.attackers:
        raise ConfigurationError(
            f"attack is '{configuration.attack.name}' with attackers = "
            f"{configuration.keys.attackers}: only simulated clients play hostile ones"
        )


def check_states(configuration: Configuration, federation: Federation) -> None:
    """Refuse clients that keep a state on nodes that have no place for it."""
    keepers = [part.name for part in configuration.parts if part.client_state_name]
    if configuration.keys.optimizer_state == "keep":
        keepers.append("optimizer-state")
    stateless = [str(p) for p, each in federation.descriptions.items() if not each.keeps_state]
    if keepers and stateless:
        raise ConfigurationError(
            f"clients keep a state from round to round ({', '.join(keepers)}) and the SuperNodes "
            f"of partitions {', '.join(stateless)} have no state-dir in their node configuration"
        )


def describe_resumption(folder: files.RunFolder, backend: str = "") -> str:
    """Return how to go on from the last round that is over, by the backend if one was named."""
    path = folder.path.resolve()
    named = str(folder.config().get("plugins", "")) if folder.holds(files.CONFIG) else ""
    own = f" --backend {backend}" if backend else ""
    own += f" --run-config 'plugins=\"{named}\"'" if named else ""
    return (
        f"all finished rounds are saved in {path}; go on from there with --resume {path}{own}, "
        f'or with name="{path.name}" resume=true in the run configuration'
    )
