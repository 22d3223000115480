#!/usr/bin/env bash
# Runs the app as a real deployment on this machine: one SuperLink and N SuperNodes, each with
# processes of its own, that talk over loopback; all are stopped at the end. Usage:
#
#   scripts/deploy-local.sh [--nodes N] [--node-config PAIRS]… [OPTION of flwr run…]
#   scripts/deploy-local.sh --run-config 'rounds=2 local-epochs=2'
#
# N defaults to 2. The first --node-config is for the node with partition-id 0, the next for 1, and
# so on, for instance 'dataset="npz:/data/site0.npz"' (an absolute path) for data of the node's own.
# With BFL_KEEP_LOGS=1 the logs of all processes stay.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source "$(dirname "${BASH_SOURCE[0]}")/flower-processes.sh"
ensure_environment

nodes=2
node_configs=()
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --nodes | --node-config)
            [ $# -gt 1 ] || { echo "refused: $1 needs a value" >&2; exit 2; }
            if [ "$1" = --nodes ]; then nodes=$2; else node_configs+=("$2"); fi
            shift
            ;;
        *) options+=("$1") ;;
    esac
    shift
done
case $nodes in
    '' | *[!0-9]* | 0) echo "refused: --nodes is $nodes; allowed: at least 1" >&2; exit 2 ;;
esac

# Every client computes with its share of the CPUs, as Ray's actors do.
cpus=$(python -c 'from bfl.engine.resources import cpus_of_this_process as c; print(c())')
share=${BFL_CPUS:-$((cpus / nodes > 0 ? cpus / nodes : 1))}

echo "warning: neither encryption nor authentication: any user of this machine can start runs and" \
    "play clients; scripts/federation.sh has both" >&2
begin_flower
ports=()
while read -r port; do ports+=("$port"); done < <(free_ports $((nodes + 1)))
superlink=127.0.0.1:${ports[0]}
cat >"$FLWR_HOME/config.toml" <<TOML
[superlink]
default = "loopback"

[superlink.loopback]
address = "$superlink"
insecure = true
TOML
start_flower superlink flower-superlink --insecure --host 127.0.0.1 --port "${ports[0]}"
wait_for_superlink "${ports[0]}" "${flower_processes[0]}"
for ((node = 0; node < nodes; node++)); do
    start_flower "supernode-$node" env BFL_CPUS="$share" \
        flower-supernode --insecure --superlink "$superlink" \
        --host 127.0.0.1 --port "${ports[$((node + 1))]}" \
        --node-config "partition-id=$node num-partitions=$nodes ${node_configs[$node]:-}"
done
run_flower "$project_root/scripts/flwr-run.sh" loopback ${options[@]+"${options[@]}"}
