"""The threads that the server's network computes with: fixed where its bits enter the result.

TensorFlow adds the parts of a gradient in an order that follows from their number, and a process
keeps the number that it has begun with. How many operations are computed side by side changes no
bit: these are as many as there are CPUs.
"""

from __future__ import annotations

from bfl.configuration import Configuration
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import ConfigurationError


def start_tensorflow(configuration: Configuration, client_threads: int | None) -> None:
    """Start TensorFlow in the server's process with the threads of a run.

    Where what the network computes enters the result, these are ``server-threads``, whatever the
    engine and the machine; elsewhere all that the process may use.

    Args:
        configuration: The run's configuration.
        client_threads: The threads of clients in the same process; None: they have their own.

    Raises:
        ConfigurationError: The process computes with another number of threads.
    """
    from bfl.keras import configure, configured_threads

    if not configuration.server_network_decides:
        configure(cpus_of_this_process())
        return
    wanted = configuration.keys.server_threads
    if client_threads not in (None, wanted):
        raise ConfigurationError(
            f"server-threads is {wanted}, and the serial engine computes the server in the process "
            f"of its clients, which have {client_threads}; what the server learns would have other "
            f"bits. Allowed: server-threads={client_threads}, or num_cpus {wanted} a client in "
            "client_resources of the backend's configuration"
        )
    configure(wanted, cpus_of_this_process())
    if (has := configured_threads()) != wanted:
        raise ConfigurationError(
            f"server-threads is {wanted}, and TensorFlow already computes with {has} threads in "
            f"this process; what the server learns would have other bits. Allowed: a process of "
            f"its own, BFL_CPUS={wanted} in the environment before the process's first run, or "
            f"server-threads={has}"
        )
