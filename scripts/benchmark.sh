#!/usr/bin/env bash
# All benchmarks, one after the other, and their table: docs/results/benchmarks.md. About an hour
# on a machine that does nothing else. Arguments name the ones to run (without: all).
#
#   scripts/benchmark.sh [NAME ...]
#
# The peers (bayesian-torch, pfl) are installed into .venv-peers, unless BFL_PEERS_PYTHON names the
# Python of an environment that has them, or is "none".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment
if [ -z "${BFL_PEERS_PYTHON:-}" ]; then
    peers=$project_root/.venv-peers
    if [ ! -e "$peers/installed" ]; then
        echo "installing the peers into $peers (once)"
        "$(find_python)" -m venv "$peers"
        "$peers/bin/python" -m pip install --quiet --disable-pip-version-check \
            --requirement "$project_root/benchmarks/peers/requirements.txt"
        touch "$peers/installed"
    fi
    export BFL_PEERS_PYTHON=$peers/bin/python
elif [ "$BFL_PEERS_PYTHON" = none ]; then
    unset BFL_PEERS_PYTHON
fi
results=$project_root/docs/results/benchmarks
all=(deployed_round engine_overhead federation_scale large_posteriors monte_carlo_prediction
     pooling seconds_by_processes secure_aggregation server_step start_up training_round
     training_step)
for name in "${@:-${all[@]}}"; do
    echo "== $name"
    python "$project_root/benchmarks/$name.py" --output "$results/$name.json"
done
python "$project_root/benchmarks/table.py" "$results" "$project_root/docs/results/benchmarks.md"
