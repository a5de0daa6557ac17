#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/check_symbols.sh [BUILD_FOLDER…]   (default: every build/* that is configured)
# Files compiled with -m flags of their own must define nothing that the linker could pick for everyone: an inline
# function of the same name elsewhere would then run AVX-512 on a machine without it. Their entry is all they export.
set -euo pipefail

root=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
entry='^(vitrine::)?override_[a-z0-9_]+\('  # override_avx2(vitrine::Kernels&)

builds=("$@")
if ((${#builds[@]} == 0)); then
  for cache in "$root"/build/*/CMakeCache.txt; do
    [[ ! -f $cache ]] || builds+=("$(dirname "$cache")")
  done
fi
((${#builds[@]})) || { echo "symbols: skipped, nothing is built"; exit 0; }

failed=0
for build in "${builds[@]}"; do
  name=$(basename "$build")
  cache=$build/CMakeCache.txt
  [[ -f $cache ]] || { echo "symbols: no build in $build" >&2; exit 2; }
  if grep -q '^CMAKE_CXX_FLAGS.*-fsanitize' "$cache"; then
    echo "symbols: skipped for $name, sanitizers add symbols of their own"
    continue
  fi
  nm=$(sed -n 's/^CMAKE_NM:FILEPATH=//p' "$cache")  # a cross build has its own

  objects=0 leaks=0
  for object in "$build"/src/CMakeFiles/vitrine_kernels.dir/kernels/{avx,amx,neon,sve,sse}*.cpp.o; do
    [[ -f $object ]] || continue
    objects=$((objects + 1))
    symbols=$("${nm:-nm}" -C "$object")
    # "ADDRESS TYPE NAME". Lower-case types are local, but for u (unique) and v, w (weak); U and w are defined elsewhere.
    # A personality reference (DW.ref.…) is weak data, no code.
    bad=$(awk -v entry="$entry" '
      $1 !~ /^[0-9a-f]+$/ { next }  # undefined: no address
      { type = $2; name = $0; sub(/^[0-9a-f]+ . /, "", name) }
      name ~ /^DW\.ref\./ { next }
      type == "T" && name ~ entry { entries++; next }
      type ~ /^[A-Zuvw]$/ { print "  " type "  " name }
      END { if (!entries) print "  -  no entry function override_…" }' <<<"$symbols")
    if [[ -n $bad ]]; then
      echo "symbols: ${object#"$root"/} (W, V, u: inline code that leaks; others: not in an anonymous namespace)"
      echo "$bad"
      leaks=1 failed=1
    fi
  done
  if ((objects == 0)); then
    echo "symbols: skipped for $name, it has no instruction-set objects"
  elif ((leaks == 0)); then
    echo "symbols: $objects instruction-set object(s) of $name, none leaks"
  fi
done
exit $failed
