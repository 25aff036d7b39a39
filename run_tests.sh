#!/usr/bin/env bash
# Everything that must hold, in the environment it makes itself: the linter, the formatter, the types and all tests.
#
#   bash run_tests.sh                       all but the slow tests: six minutes on two idle cores, the first time more
#   bash run_tests.sh --all                 all tests, with the packages of all environments and sinks
#   bash run_tests.sh tests/memory -q       pytest gets the arguments, and leaves nothing out
#
# Four processes share the tests, a file at a time, as many tests wait; `-n 0`, which comes last, makes it one, as
# `--pdb` needs it.
# The tests start a Redis server of their own, so nothing has to run beforehand and nothing that runs is touched.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
exec </dev/null # nothing here may ask, least of all in CI
unset PYTHONDONTWRITEBYTECODE # the tests start hundreds of processes, and each would compile the project anew

level=--dev
case ${1:-} in
  '') set -- --tier quick ;;
  --all)
    level=--all
    set -- "${@:2}"
    ;;
  --tier) [[ ${2:-} == quick ]] || level=--all ;;
esac
[[ -z ${TESTS_NEED_EXTRAS:-} ]] || level=--all # as in CI: then none of their tests may be left out

bash make_environment.sh "$level"
readonly python=${RAINBOW_VENV:-.venv}/bin/python

step() {
  printf '\n== %s\n' "$*"
  "$python" -m "$@"
}

step ruff check .
step ruff format --check .
step mypy
step pytest -n 4 --dist loadfile "$@"
