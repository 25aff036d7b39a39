#!/usr/bin/env bash
# Runs a learner or an actor for a Job, for which exit code 0 means that its work is done. A program that was told to
# stop ends with 0, too, as when its node is drained: here with 75, unless the run has finished by its own record.
# It waits for Redis first, as long as half an hour: a program that meets no server when it starts calls that a mistake.
status() { REDIS_USERNAME=viewer REDIS_PASSWORD=$VIEWER_PASSWORD python run_status.py --run-name "$RUN" "$@"; }
trap 'exit 75' TERM
for _ in {1..180}; do
  said=$(status 2>&1 >/dev/null) && break
  [[ $said == *"no Redis server answers"* || $said == *" slots"* || $said == *"reading its file"* ]] || break
  printf '%s\n' "$said"
  sleep 10
done
# Of a run that is there already, what is missing now (a server, room on a disk) is no mistake of the command.
[[ $(status --json 2>/dev/null) != *'"status": '* ]] || export RAINBOW_HAS_WORKED=yes
"$@" &
program=$!
trap 'kill -TERM "$program"' TERM
code=0
wait "$program" || code=$?
while kill -0 "$program" 2>/dev/null; do # the signal has ended the wait alone
  code=0
  wait "$program" || code=$?
done
if [[ $code == 0 || $code == 143 ]]; then # 143: stopped while it loaded
  [[ $(status --json) == *'"status": "finished"'* ]] || exit 75
fi
exit "$code"
