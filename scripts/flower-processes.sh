# Sourced by flwr-run.sh, deploy-local.sh and federation.sh: Flower's processes with a home, ports and
# an end of their own.

# Prints free loopback ports, one line each. Usage: free_ports COUNT
free_ports() {
    python - "$1" <<'PYTHON'
import socket
import sys

sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in sockets:
    each.bind(("127.0.0.1", 0))
    print(each.getsockname()[1])
PYTHON
}

# Makes a temporary folder, FLOWER_SCRATCH, with an empty FLWR_HOME and an empty working folder, and
# has everything started from here end, and the folder removed, when the script does. Flower's
# processes must not start in a checkout: Ray would import clients/ and bfl/ from there.
begin_flower() {
    FLOWER_SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/bfl-flower.XXXXXX")
    mkdir "$FLOWER_SCRATCH/home" "$FLOWER_SCRATCH/work" "$FLOWER_SCRATCH/logs"
    export FLWR_HOME=$FLOWER_SCRATCH/home
    # The environment that is active has the project installed: no `uv sync` for every run.
    export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
    flower_processes=()
    flower_foreground=
    trap end_flower EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# Starts a command in the empty working folder with its output in a log. Usage: start_flower LOG COMMAND…
start_flower() {
    local log=$FLOWER_SCRATCH/logs/$1
    shift
    (cd "$FLOWER_SCRATCH/work" && exec "$@") >"$log" 2>&1 </dev/null &
    flower_processes+=($!)
}

# Runs a command to its end and returns its status; a signal to the script ends it at once, where Bash
# by itself would wait for it. Usage: run_flower COMMAND…
run_flower() {
    local status=0
    "$@" &
    flower_foreground=$!
    wait "$flower_foreground" || status=$?
    flower_foreground=
    return "$status"
}

# Waits until a SuperLink answers. Usage: wait_for_superlink PORT PID
wait_for_superlink() {
    local attempt
    for attempt in $(seq 240); do
        if python - "$1" 2>/dev/null <<'PYTHON'
import sys
import urllib.request

urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=1)
PYTHON
        then
            return
        fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.25
    done
    echo "failed: the SuperLink does not answer after $attempt looks; its last words:" >&2
    tail -n 20 "$FLOWER_SCRATCH/logs/superlink" >&2
    return 1
}

# Waits until a process has said something. Usage: wait_for_line LOG TEXT PID
wait_for_line() {
    local attempt
    for attempt in $(seq 480); do
        if grep -q "$2" "$FLOWER_SCRATCH/logs/$1"; then
            return
        fi
        kill -0 "$3" 2>/dev/null || break
        sleep 0.25
    done
    echo "failed: $1 has not said '$2' after $attempt looks; its last words:" >&2
    tail -n 20 "$FLOWER_SCRATCH/logs/$1" >&2
    return 1
}

# Prints the process ids given and those of all their descendants.
with_descendants() {
    ps -A -o pid= -o ppid= | awk -v roots="$*" '
        { parent[$1] = $2 }
        END {
            n = split(roots, ids, " ")
            for (i = 1; i <= n; i++) if (ids[i] in parent) wanted[ids[i]] = 1
            do {
                found = 0
                for (pid in parent)
                    if (!(pid in wanted) && (parent[pid] in wanted)) { wanted[pid] = 1; found = 1 }
            } while (found)
            for (pid in wanted) print pid
        }'
}

# Ends all processes that were started, with their descendants, which Flower detaches: at first
# politely, and after ten seconds for good. Then removes the temporary folder.
end_flower() {
    local status=$? pids alive=
    trap - EXIT INT TERM
    if [ -n "$flower_foreground" ]; then
        flower_processes+=("$flower_foreground")
    fi
    if [ ${#flower_processes[@]} -gt 0 ]; then
        pids=$(with_descendants "${flower_processes[@]}")
        # shellcheck disable=SC2086 # a list of numbers
        [ -z "$pids" ] || kill $pids 2>/dev/null || true
        for _ in $(seq 40); do
            alive=
            for pid in $pids; do
                if kill -0 "$pid" 2>/dev/null; then alive="$alive $pid"; fi
            done
            [ -n "$alive" ] || break
            sleep 0.25
        done
        # shellcheck disable=SC2086
        [ -z "$alive" ] || kill -9 $alive 2>/dev/null || true
        wait 2>/dev/null || true
    fi
    if [ -n "${BFL_KEEP_LOGS:-}" ]; then
        echo "logs: $FLOWER_SCRATCH/logs" >&2
    else
        rm -rf "$FLOWER_SCRATCH"
    fi
    exit "$status"
}
