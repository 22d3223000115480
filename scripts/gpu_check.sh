#!/usr/bin/env bash
# Shows what bfl does on this machine's GPU, in at most nine minutes, and writes it as JSON.
#
#   scripts/gpu_check.sh [--data-dir FOLDER] [--output FILE] [--dry-run]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment
exec python "$project_root/benchmarks/gpu_check.py" "$@"
