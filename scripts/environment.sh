# Sourced by the other scripts: ensure_environment [EXTRA] makes the project's own virtual
# environment, .venv, once, and puts its commands on PATH. With BFL_PYTHON_ENV set to an environment
# that has the project installed, that one is used as it is.

project_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
            2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "no Python 3.11, 3.12 or 3.13 found; install one, or set PYTHON to it" >&2
    return 2
}

ensure_environment() {
    local extra=${1:-} environment=${BFL_PYTHON_ENV:-$project_root/.venv} python stamp wanted
    if [ -z "${BFL_PYTHON_ENV:-}" ]; then
        stamp=$environment/installed${extra:+-$extra}
        wanted=$(cksum <"$project_root/pyproject.toml")
        if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
            python=$(find_python)
            echo "installing into $environment (once; takes a few minutes)"
            [ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
            "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
                --editable "$project_root${extra:+[$extra]}"
            echo "$wanted" >"$stamp"
        fi
    fi
    export PATH="$environment/bin:$PATH"
    # Quiet logs, no telemetry; a value that is already set stays.
    export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
    export FLWR_TELEMETRY_ENABLED=${FLWR_TELEMETRY_ENABLED:-0}
    export FLWR_DISABLE_UPDATE_CHECK=${FLWR_DISABLE_UPDATE_CHECK:-1}
}
