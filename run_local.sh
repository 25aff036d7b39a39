#!/usr/bin/env bash
# A start of the words that users of central inference know; start_learning_atari.sh does the work.
set -euo pipefail

usage='run_local.sh ENVIRONMENT AGENT ACTORS ENVIRONMENTS_PER_ACTOR [OPTION ...]'

help() {
  cat <<END
usage: bash $usage

Starts a Redis server, the learner and the actors on this machine, as start_learning_atari.sh does, until Ctrl-C, which
saves and stops them all. The same command resumes.

  ENVIRONMENT             a game of Atari, such as pong, or what --env takes, such as gymnasium:CartPole-v1
  AGENT                   what learns, such as rainbow_iqn, impala or r2d2
  ACTORS                  how many actors to start
  ENVIRONMENTS_PER_ACTOR  how many environments an actor batches through one forward pass
  OPTION ...              options of start_learning_atari.sh: bash start_learning_atari.sh --help lists them
END
}

fail() {
  printf 'run_local.sh: error: %s\n' "$*" >&2
  exit 2
}

number() { # NAME TEXT
  [[ $2 =~ ^[0-9]+$ ]] || fail "$1: expected a whole number, got '$2'; the words are $usage"
}

for word; do
  case $word in -h | --help) help && exit ;; esac
done
(($# >= 4)) || fail "expected four words before any option, got $#: $usage"
[[ $1 != -* && $2 != -* ]] || fail "expected four words before any option: $usage"
number ACTORS "$3"
number ENVIRONMENTS_PER_ACTOR "$4"
case $1 in
  *:* | atari) environment=--env ;;
  *) environment=--game ;;
esac
folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
exec bash "$folder/start_learning_atari.sh" "$environment" "$1" --agent "$2" --nb-actor "$3" \
  --nb-env-per-actor "$4" "${@:5}"
