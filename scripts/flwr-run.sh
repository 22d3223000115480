#!/usr/bin/env bash
# Runs the app by `flwr run --stream` and exits with 0 only if the run has completed; flwr itself
# exits with 0 when a run fails. Usage: scripts/flwr-run.sh [CONNECTION] [OPTION…]
#
#   scripts/flwr-run.sh local --federation-config 'num-supernodes=2 client-resources-num-cpus=1' \
#       --run-config 'rounds=1'
#
# CONNECTION is a name in $FLWR_HOME/config.toml (default: local, the simulation). The options are
# those of flwr run; --run-config may be repeated, pairs and TOML files may be mixed, and a relative
# output-dir, or file of plugins, is below the current folder. What ends the log's stream need not end the run: the
# SuperLink is asked until the run is over, or until it has not answered for BFL_SUPERLINK_PATIENCE
# seconds (default 300). Unless the environment says which SuperLink to use
# (FLWR_HOME, and for `local` FLWR_LOCAL_SUPERLINK_HTTP_API_PORT), a SuperLink with a temporary
# FLWR_HOME and free ports is started for this run and stopped after it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source "$(dirname "${BASH_SOURCE[0]}")/flower-processes.sh"
ensure_environment
export PYTHONUNBUFFERED=1

connection=local
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
    connection=$1
    shift
fi
run_configs=()
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --run-config=*) run_configs+=("${1#*=}") ;;
        --run-config | -c)
            [ $# -gt 1 ] || { echo "refused: $1 needs a value" >&2; exit 2; }
            run_configs+=("$2")
            shift
            ;;
        --stream) ;;
        *) options+=("$1") ;;
    esac
    shift
done

own_flwr_home=${FLWR_HOME:-}
own_superlink_port=${FLWR_LOCAL_SUPERLINK_HTTP_API_PORT:-}
if [ "$connection" != local ] && [ -z "$own_flwr_home" ]; then
    echo "refused: connection '$connection' needs FLWR_HOME, the folder of its config.toml" >&2
    exit 2
fi
begin_flower
if [ -n "$own_flwr_home" ]; then
    export FLWR_HOME=$own_flwr_home
fi

# One TOML file of all overrides: flwr mixes no files and pairs, and names no key that it refuses.
config=$FLOWER_SCRATCH/run-config.toml
python - "$project_root" "$config" ${run_configs[@]+"${run_configs[@]}"} <<'PYTHON'
import sys
from pathlib import Path

import tomli_w

from bfl.configuration import resolve
from bfl.configuration.sources import read_run_config
from bfl.engine.flower import FlowerApp
from bfl.errors import ConfigurationError
from bfl.experiments.run.simulation import made_up_name

root, config, *texts = sys.argv[1:]
try:
    values = read_run_config(texts)
    app = FlowerApp.read(Path(root))
    complete = app.run_config(values)
    values = app.for_flwr_run(values)
    configuration = resolve(complete, check_data=False)  # the data may be elsewhere
    keys = configuration.keys
except ConfigurationError as error:
    print(f"refused: {error}", file=sys.stderr)
    sys.exit(2)
# The app runs in a folder of Flower's.
values["output-dir"] = str(Path(keys.output_dir).absolute())
values["name"] = keys.name or made_up_name(configuration)
if keys.plugins:
    values["plugins"] = keys.plugins  # with absolute paths, and what they hold now
Path(config).write_text(tomli_w.dumps(values), encoding="utf-8")
folder = Path(values["output-dir"], values["name"])
Path(config).with_name("run-folder").write_text(str(folder), encoding="utf-8")
PYTHON

if [ "$connection" = local ] && [ -z "$own_superlink_port" ]; then
    port=$(free_ports 1)
    export FLWR_LOCAL_SUPERLINK_HTTP_API_PORT=$port
    start_flower superlink python -P -m bfl.engine.flower.superlink --insecure --simulation \
        --host 127.0.0.1 --port "$port"
    wait_for_superlink "$port" "${flower_processes[0]}"
fi

cd "$FLOWER_SCRATCH/work"
output=$FLOWER_SCRATCH/logs/flwr-run

# Prints the run's id as soon as flwr has said it.
started_run() {
    sed -n 's/.*Successfully started run \([0-9][0-9]*\).*/\1/p' "$output" 2>/dev/null | head -n 1
}

# A signal to the script stops the run as well, which a SuperLink that is not its own goes on with.
# One that does not answer is not waited for.
stop_run() {
    local id
    id=$(started_run)
    [ -n "$id" ] || { sleep 1 && id=$(started_run); }  # flwr may have said it this moment
    [ -z "$id" ] || python - flwr stop "$id" "$connection" <<'PYTHON' 2>/dev/null || true
import subprocess, sys

subprocess.run(sys.argv[1:], timeout=10, capture_output=True)
PYTHON
}
trap 'stop_run; exit 130' INT
trap 'stop_run; exit 143' TERM
stream() {
    flwr run "$project_root" "$connection" --stream --run-config "$config" \
        ${options[@]+"${options[@]}"} 2>&1 | tee "$output"
}
streamed=0
run_flower stream || streamed=$?
run_id=$(started_run)
if [ -z "$run_id" ]; then
    echo "failed: flwr has not started the run" >&2
    exit 1
fi

# Prints the run's status and, in the next line, what is said about it; fails if nobody answers.
ask_status() {
    flwr ls "$connection" --run-id "$run_id" --format json 2>/dev/null | python -c '
import json, sys
run = json.load(sys.stdin)["runs"][0]
print(run["status"], run["status-details"], sep="\n")' 2>/dev/null
}

# Waits until the run is over, in which the SuperLink may be away for a while; sets status, details.
wait_for_end() {
    local patience=${BFL_SUPERLINK_PATIENCE:-300} heard=$SECONDS answer
    while true; do
        if answer=$(ask_status); then
            heard=$SECONDS
            status=${answer%%$'\n'*}
            details=${answer#*$'\n'}
            case $status in finished:*) return ;; esac
            if [ "$streamed" != 0 ]; then
                echo "the stream of the log has ended (status $streamed), and run $run_id goes on" >&2
                streamed=0
            fi
        elif [ ${#flower_processes[@]} -gt 0 ] && ! kill -0 "${flower_processes[0]}" 2>/dev/null; then
            echo "failed: the SuperLink has died, and run $run_id with it" >&2
            exit 1
        elif [ $((SECONDS - heard)) -ge "$patience" ]; then
            echo "failed: the SuperLink has not answered for $patience s; run $run_id may go on:" \
                "ask 'flwr ls $connection --run-id $run_id' before it is resumed" >&2
            exit 1
        fi
        sleep 1
    done
}
wait_for_end
if [ "$status" != finished:completed ]; then
    echo "failed: run $run_id is $status ($details)" >&2
    run_folder=$(cat "$FLOWER_SCRATCH/run-folder")
    # Not where it was refused before it began, nor where the server writes on another machine.
    [ ! -f "$run_folder/config.toml" ] || echo "it goes on after its last finished round by the" \
        "same command with --run-config 'name=\"$(basename "$run_folder")\" resume=true'" >&2
    exit 1
fi
