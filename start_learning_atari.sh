#!/usr/bin/env bash
# One command for everything: makes the environment, in which programs/start then starts Redis, the learner and the actors.
set -euo pipefail
(($$ != 1)) || trap 'exit 143' TERM HUP # Linux delivers them to process 1, as in a container, only with a handler
export RAINBOW_CALLED_AS=$0 # for the line with the command that goes on
export RAINBOW_CALLED_FROM=${RAINBOW_CALLED_FROM:-$PWD} # where modules of --agent and --env are looked for, too
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

for word; do # the help needs no environment
  case $word in -h | --help) exec cat programs/start/help.txt ;; esac
done
bash make_environment.sh >&2 # --version and --print-completion have the standard output for themselves
exec "${RAINBOW_VENV:-$PWD/.venv}/bin/python" -m rainbow_iqn_apex.programs.start "$@"
