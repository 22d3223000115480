#!/usr/bin/env bash
# Lint, types and all tests but those marked long. Installs what it needs into .venv the first time.
# Arguments go to pytest, for instance: scripts/test.sh -m 'not slow', or -m long, or
# --part strategy:conflation for what concerns one part. About 7 minutes on 2 quiet cores. With
# BFL_TEST_ONLY=1 lint and types are left out.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment test
cd "$project_root"
if [ -z "${BFL_TEST_ONLY:-}" ]; then
    ruff check .
    ruff format --check .
    mypy & # meanwhile the tests begin
    types=$!
fi
# Three processes on two cores: many tests wait for others to start. Tests of one file share what
# they start, and the files come in the order of the collection, which puts the slow ones first
# (tests/conftest.py).
status=0
python -m pytest --numprocesses "${BFL_TEST_PROCESSES:-3}" --dist loadfile \
    --no-loadscope-reorder "$@" || status=$?
if [ -n "${types:-}" ] && ! wait "$types"; then
    echo "mypy has found errors, see above"
    status=$((status ? status : 1))
fi
exit "$status"
