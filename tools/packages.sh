# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # the lists are used, and $root is set, by the script that sources this
# Sourced by run.sh and test.sh: the Debian packages, and how a preset is built.
# Nothing here writes to standard output or reads standard input: those belong to vitrine.

# What each is for, and why it and not a rival: docs/dependencies.md.
run_packages=(g++ cmake ninja-build pkg-config
  libsimdjson-dev nlohmann-json3-dev libcli11-dev libfmt-dev libpcre2-dev libutf8proc-dev)
test_packages=("${run_packages[@]}" libgtest-dev librapidcheck-dev clang-format ccache python3)
tidy_packages=("${test_packages[@]}" clang-tidy)
# clang only recommends its runtime, where libFuzzer and the sanitizers are; llvm has the symbolizer.
fuzz_packages=("${run_packages[@]}" ccache clang libclang-rt-14-dev llvm)
bench_packages=("${run_packages[@]}" ccache libbenchmark-dev)

say() { printf '%s\n' "$*" >&2; }

# ensure_packages NAME…: installs those that are missing, after naming them.
ensure_packages() {
  # Not Debian: configuring will say what it does not find.
  command -v dpkg-query >/dev/null || return 0

  local installed name missing=()
  # Fails when a name is unknown, which is one way of being missing.
  # shellcheck disable=SC2016  # dpkg-query expands these
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'"installed $name"$'\n'* ]] || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  say "missing Debian packages: ${missing[*]}"

  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      suggest_install "${missing[@]}"
    elif sudo -n true 2>/dev/null </dev/null; then
      as_root=(sudo -n)
    elif [[ -t 2 ]]; then  # someone is there to type the password
      say "installing them needs root, so sudo may ask for your password"
      as_root=(sudo)
    else
      suggest_install "${missing[@]}"
    fi
  fi
  say "installing them (a minute or two)…"
  local log
  log=$(mktemp)
  # On a bare machine the package lists are empty, on an old one they are stale: only then are they fetched.
  if ! apt_get install "${missing[@]}" && ! { apt_get update || true; apt_get install "${missing[@]}"; }; then
    cat "$log" >&2
    rm -f "$log"
    suggest_install "${missing[@]}"
  fi
  rm -f "$log"
}

# apt_get COMMAND NAME…: quiet, and patient with another apt that runs. Uses the caller's as_root and log.
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$1" -y -q --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${@:2}" </dev/null >>"$log" 2>&1
}

suggest_install() {
  say "could not install them; run this as root, then try again:"
  say "  apt-get update && apt-get install -y --no-install-recommends $*"
  exit 1
}

# build_preset PRESET [CMAKE OPTION…]: configures build/PRESET (or build/$folder) once, then always asks ninja.
build_preset() {
  local preset=$1 name=${folder:-$1} note="building…"
  local dir="$root/build/$name" log="build/$name.log"
  shift
  mkdir -p "$root/build"
  # Two ninjas in one folder would spoil each other's work.
  exec 9>"$root/build/$name.lock"
  flock -n 9 || { say "waiting for another build of '$name'…" && flock 9; }

  [[ -f $dir/.ninja_log ]] || note="building (the first time takes about two minutes)…"
  # A moved or copied checkout would go on building the old one: configure it afresh.
  if [[ ! -f $dir/build.ninja ]] || ! grep -Fxq "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$dir/CMakeCache.txt"; then
    say "$note"
    note=
    if ! (cd "$root" && cmake --preset "$preset" -B "build/$name" --fresh "$@" >"$log" 2>&1 </dev/null 9>&-); then
      cat "$root/$log" >&2
      say "configuring failed; the log is $log"
      exit 1
    fi
  fi
  if ! ninja -C "$dir" 2>&1 </dev/null 9>&- | tee "$root/$log" | show_progress "$note"; then
    grep -vE '^\[[0-9]+/[0-9]+\] |^ninja: Entering directory' "$root/$log" >&2 || true
    say "the build failed; the log is $log"
    exit 1
  fi
  exec 9>&-
}

# show_progress NOTE: reads ninja's lines. Silent when there is nothing to do; otherwise says NOTE once, and on a
# terminal counts the steps in place.
show_progress() {
  local note=$1 line status terminal=no
  [[ -t 2 ]] && terminal=yes
  while true; do
    # ninja names a step when it ends: if nothing came for a second, the first one is under way.
    status=0
    IFS= read -r ${note:+-t 1} line || status=$?
    if ((status > 128)); then
      say "$note"
      note=
    elif ((status)); then
      break
    elif [[ $line =~ ^\[[1-9][0-9]*/[0-9]+\]\  ]]; then
      [[ -z $note ]] || say "$note"
      note=
      [[ $terminal == no ]] || printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$line" >&2
    fi
  done
  [[ $terminal == no || -n $note ]] || printf '\r\033[K' >&2
}
