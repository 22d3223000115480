#!/usr/bin/env bash
# Simulates a federation of 10 clients that train a Flipout ResNet-20 on scikit-learn's digits, under
# Flower's Ray engine. Installs what it needs into .venv the first time. Arguments go to
# flower-simulation, for instance: scripts/simulate.sh --run-config 'strategy="conflation"'
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment
cd "$project_root"
exec flower-simulation --app . "$@"
