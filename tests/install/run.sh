#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh SOURCE BUILD CMAKE COMPILER FLAGS BUILD_TYPE: installs BUILD to a temporary prefix, builds examples/hello.cpp
# against it as a project of its own, and runs that.
set -euo pipefail
source=$1 build=$2 cmake=$3 compiler=$4 flags=$5 build_type=$6

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() {
  "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "failed: $*"; exit 1; }
}

quietly "$cmake" --install "$build" --prefix "$work/prefix"
quietly "$cmake" -G Ninja -S "$source/tests/install/consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_BUILD_TYPE="$build_type" \
  -DHELLO="$source/examples/hello.cpp" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$work/prefix/bin"
quietly "$cmake" --build "$work/build"

for file in bin/vitrine share/vitrine/demo/config.json include/vitrine/engine.h; do
  [[ -f $work/prefix/$file ]] || { echo "$file was not installed"; exit 1; }
done

# Both find the demo model beside the folder they lie in, whether or not they are given it.
cd "$work/prefix"
says_paris() {
  local output
  output=$("$@" </dev/null)
  [[ $output == *Paris* ]] || { printf '%s\n' "$output"; echo "$1 did not say Paris"; exit 1; }
}
says_paris bin/hello share/vitrine/demo
says_paris bin/vitrine run "The capital of France is" --greedy --max-tokens 8
