#!/usr/bin/env bash
# What only a machine with a GPU can show: the tests that need one, and how fast each agent's preset learns and acts.
#
#   bash benchmarks/gpu.sh                              a quarter of an hour at most, when the environment is made
#   bash benchmarks/gpu.sh --device cpu --seconds 1     tries the table without a GPU; the tests are skipped
#
# RAINBOW_VENV=...   an environment of your own, as in make_environment.sh
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
exec </dev/null

bash make_environment.sh --all
readonly python=${RAINBOW_VENV:-.venv}/bin/python

timeout 290 "$python" -m benchmarks gpu "$@" || {
  status=$?
  [[ $status == 124 ]] || exit $status # that time is up is no reason to leave the tests out
}
printf '\n'
timeout --signal INT --kill-after 30 590 "$python" -m pytest -m gpu -n 4 -q -rs tests/agents tests/memory tests/test_gpu_runs.py
