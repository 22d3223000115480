#!/usr/bin/env bash
# Kills a run at its start and in random rounds, at random moments of them (SIGKILL), resumes it each
# time, and compares its end with that of a run that nobody disturbed: the same posterior, bit for
# bit, and every round recorded once.
#
#   scripts/soak.sh [KILLS] [BACKEND] [ROUNDS]
#
# 20 kills, the backend serial (or ray) and 400 rounds by default.
#
# With ray it is now the command that is killed, now one of its actors.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment
exec python "$project_root/scripts/soak.py" "${1:-20}" "${2:-serial}" "${3:-400}"
