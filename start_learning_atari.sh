#!/usr/bin/env bash
# One command for everything: makes the environment, in which programs/start then starts Redis, the learner and the actors.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

for word; do # the help needs no environment
  case $word in -h | --help) exec cat programs/start/help.txt ;; esac
done
bash make_environment.sh
exec "${RAINBOW_VENV:-$PWD/.venv}/bin/python" -m rainbow_iqn_apex.programs.start "$0" "$@"
