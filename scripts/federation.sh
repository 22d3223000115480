#!/usr/bin/env bash
# A real federation, whole, on this machine: an authority, certificates and keys; the server behind
# its TLS door; N clients, each with its own key and its own data folder; one run; and all of it
# stopped at the end, also by Ctrl-C. On several machines, each does its part: docs/deployment.md.
# Usage:
#
#   scripts/federation.sh [--clients N] [--run-config PAIRS|FILE]…
#   scripts/federation.sh --run-config 'rounds=2 local-epochs=2 name="real"'
#
# N defaults to 2. Each client's images are those that a simulation with the same configuration gives
# it, so that both end in the same posterior. With BFL_KEEP_LOGS=1 the logs of all processes stay.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source "$(dirname "${BASH_SOURCE[0]}")/flower-processes.sh"
ensure_environment

clients=2
run_configs=()
while [ $# -gt 0 ]; do
    case $1 in
        --clients | --run-config)
            [ $# -gt 1 ] || { echo "refused: $1 needs a value" >&2; exit 2; }
            if [ "$1" = --clients ]; then clients=$2; else run_configs+=("$2"); fi
            shift
            ;;
        *) echo "refused: unknown option $1; allowed: --clients, --run-config" >&2; exit 2 ;;
    esac
    shift
done
case $clients in
    '' | *[!0-9]* | 0) echo "refused: --clients is $clients; allowed: at least 1" >&2; exit 2 ;;
esac

# Every client computes with its share of the CPUs, as Ray's actors do.
cpus=$(python -c 'from bfl.engine.resources import cpus_of_this_process as c; print(c())')
share=${BFL_CPUS:-$((cpus / clients > 0 ? cpus / clients : 1))}

begin_flower
federation=$FLOWER_SCRATCH/federation
ports=()
while read -r port; do ports+=("$port"); done < <(free_ports 2)
bfl federation init "$federation" --host localhost --clients "$clients" \
    --bind 127.0.0.1 --port "${ports[0]}" --superlink-port "${ports[1]}"

mkdir "$FLOWER_SCRATCH/data"
python "$project_root/scripts/site_data.py" "$clients" "$FLOWER_SCRATCH/data" \
    ${run_configs[@]+"${run_configs[@]}"}
for ((client = 0; client < clients; client++)); do
    mv "$FLOWER_SCRATCH/data/$client.npz" "$federation/clients/client-$client/data.npz"
    printf 'dataset = "npz:data.npz"\ncpus = %s\n' "$share" \
        >"$federation/clients/client-$client/node.toml"
done

start_flower server "$federation/server/start.sh"
wait_for_line server 'clients call' "${flower_processes[0]}"
for ((client = 0; client < clients; client++)); do
    start_flower "client-$client" "$federation/clients/client-$client/start.sh"
done
export FLWR_HOME=$federation/server/state/flower
options=()
for each in ${run_configs[@]+"${run_configs[@]}"}; do options+=(--run-config "$each"); done
run_flower "$project_root/scripts/flwr-run.sh" federation ${options[@]+"${options[@]}"}
