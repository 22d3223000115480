#!/usr/bin/env bash
# Simulates a federation of 10 clients that train a Flipout ResNet-20 on scikit-learn's digits, with a
# closing round, under Flower's Ray engine. Installs what it needs into .venv the first time.
# Arguments go to flower-simulation. With --run-config or --resume these say all, for instance:
# scripts/simulate.sh --run-config 'strategy="ws" inference="flipout"' is the papers' run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment
cd "$project_root"
case " $* " in
*" --run-config"* | *" --resume"*) ;;
*) set -- --run-config configs/digits.toml "$@" ;;
esac
exec flower-simulation --app . "$@"
