#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

usage() {
  cat <<'END'
./test.sh                 checks (includes, format, symbols), then all tests, optimised
./test.sh --asan          all tests under the address and undefined-behaviour sanitizers
./test.sh --tsan          all tests under the thread sanitizer
./test.sh --filter REGEX  only the tests whose names match, without the checks; with --asan and --tsan too
./test.sh --fuzz SECONDS  each fuzz target for that long; what it finds lies in build/fuzz/artifacts/
./test.sh --tidy          clang-tidy over src/
./test.sh --bench         the micro-benchmarks
Installs the Debian packages that are missing and builds what has changed. Exits 0 if all is well.
END
}

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"

die() {
  say "test.sh: $1 (see --help)"
  exit 2
}

mode=dev filter="" seconds=""
set_mode() {
  [[ $mode == dev ]] || die "--$mode and --$1 do not go together"
  mode=$1
}
while (($#)); do
  case $1 in
    --asan | --tsan | --tidy | --bench) set_mode "${1#--}" ;;
    --fuzz)
      set_mode fuzz
      seconds=${2:-}
      [[ $seconds =~ ^[1-9][0-9]*$ ]] || die "--fuzz wants a number of seconds"
      shift
      ;;
    --filter)
      filter=${2:-}
      [[ -n $filter ]] || die "--filter wants a regular expression"
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option '$1'" ;;
  esac
  shift
done
[[ -z $filter || $mode =~ ^(dev|asan|tsan)$ ]] || die "--filter and --$mode do not go together"

cores=$(nproc)
failed=()  # what went wrong so far; the rest is done all the same

# Our C++ files, separated by NULs: those git knows or would add, or without git all outside build/.
cpp_files() {
  if git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git -C "$root" ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp'
  else
    (cd "$root" && find . -path ./build -prune -o \( -name '*.h' -o -name '*.cpp' \) -printf '%P\0')
  fi
}

# Formatters of another version format otherwise: Debian 12's is the one that counts.
clang_tool() { command -v "$1-14" || echo "$1"; }

check_includes() { python3 "$root/tools/check_includes.py" || failed+=(includes); }
check_docs() { python3 "$root/tools/check_docs.py" || failed+=(docs); }

check_format() {
  local file files=() bad=()
  while IFS= read -r -d '' file; do
    [[ ! -f $root/$file ]] || files+=("$file")  # git lists deleted files too
  done < <(cpp_files)
  local format
  format=$(clang_tool clang-format)
  # One process a bundle of files; the warnings name the file first.
  if (cd "$root" && printf '%s\0' "${files[@]}" |
    xargs -0 -n 16 -P "$cores" "$format" --dry-run -Werror) >/dev/null 2>"$work/format"; then
    echo "format: ${#files[@]} files, all as .clang-format wants them"
    return
  fi
  mapfile -t bad < <(sed -nE 's/^([^ ]+):[0-9]+:[0-9]+: (error|warning): .*/\1/p' "$work/format" | sort -u)
  if ((${#bad[@]})); then
    echo "format: ${#bad[@]} files differ, mend them with: $(basename "$format") -i ${bad[*]}"
  else
    cat "$work/format"
  fi
  failed+=(format)
}

check_symbols() { "$root/tools/check_symbols.sh" "$root/build/$mode" || failed+=(symbols); }

run_ctest() {
  local options=(--output-on-failure -j "$cores" --no-tests=error
    --output-junit "$work/tests.xml")
  [[ -z $filter ]] || options+=(-R "$filter")
  local -x ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
  local -x UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
  local -x TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
  local fixed_addresses=()
  # GCC 12's thread sanitizer does not start where the kernel randomises addresses as widely as newer ones do.
  if [[ $mode == tsan ]] && setarch -R true 2>/dev/null; then
    fixed_addresses=(setarch -R)
  fi
  (cd "$root/build/$mode" && "${fixed_addresses[@]}" ctest "${options[@]}") || failed+=(tests)
  [[ ! -f $work/tests.xml ]] || summarise "$work/tests.xml"
}

# The skipped tests by reason, then the counts alone on a line.
summarise() {
  python3 - "$1" <<'END'
import collections, re, sys
import xml.etree.ElementTree as xml

suite = xml.parse(sys.argv[1]).getroot()
passed = failed = 0
skipped = collections.defaultdict(list)
for case in suite.iter("testcase"):
    status = case.get("status")
    if status == "run":
        passed += 1
    elif status == "fail":
        failed += 1
    else:  # skipped by itself ("notrun") or disabled
        output = case.findtext("system-out") or ""
        # what GTEST_SKIP() << was given, or unittest's skipTest
        reason = re.search(r": Skipped\n(.+)", output) or re.search(r"skipped ['\"](.+?)['\"]\n", output)
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        skipped[reason[1] if reason else status if not lines else lines[-1]].append(case.get("name"))
for reason, names in skipped.items():
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    print(f"skipped {names[0]}{more}: {reason[:100]}")
print(f"{passed} passed, {failed} failed, {sum(map(len, skipped.values()))} skipped")
END
}

run_fuzz() {
  local target name corpus seeds log passed=0 crashed=0
  for target in "$root"/build/fuzz/*_fuzz; do
    [[ -x $target ]] || { say "no fuzz targets in build/fuzz/" && exit 1; }
    name=$(basename "$target" _fuzz)
    corpus=$root/build/fuzz/corpus/$name  # libFuzzer adds what it finds of interest, for the next time
    log=$root/build/fuzz/$name.log
    mkdir -p "$corpus" "$root/build/fuzz/artifacts"
    seeds=()
    [[ ! -d $root/tests/fuzz/corpus/$name ]] || seeds=("$root/tests/fuzz/corpus/$name")
    if "$target" "$corpus" "${seeds[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
      -artifact_prefix="$root/build/fuzz/artifacts/$name-" >"$log" 2>&1 </dev/null; then
      echo "$name: $(sed -nE 's/^Done ([0-9]+ runs).*/\1/p' "$log"), $(find "$corpus" -type f | wc -l) inputs kept"
      passed=$((passed + 1))
    else
      tail -n 40 "$log"
      echo "$name: failed, the whole story is in build/fuzz/$name.log"
      crashed=$((crashed + 1))
    fi
  done
  echo "$passed passed, $crashed failed"
  ((crashed == 0)) || failed+=(fuzz)
}

run_tidy() {
  local tidy
  tidy=$(clang_tool clang-tidy)
  # The flags are GCC's, and clang does not know all of them. What goes to standard error is only the count of warnings
  # in other people's headers.
  if (cd "$root" && find src -name '*.cpp' -print0 | sort -z |
    xargs -0 -n 1 -P "$cores" "$tidy" -p build/dev --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null); then
    echo "tidy: nothing to complain about"
  else
    failed+=(tidy)
  fi
}

run_benchmarks() {
  local program found=no
  for program in "$root"/build/bench/*_bench; do
    [[ -x $program ]] || continue
    found=yes
    "$program" || failed+=("$(basename "$program")")
  done
  [[ $found == yes ]] || { say "no benchmarks in build/bench/" && exit 1; }
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $mode in
  dev)
    ensure_packages "${test_packages[@]}"
    if [[ -z $filter ]]; then
      check_includes
      check_docs
      check_format
    fi
    build_preset dev -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    [[ -n $filter ]] || check_symbols
    run_ctest
    ;;
  asan | tsan)
    ensure_packages "${test_packages[@]}"
    build_preset "$mode"
    run_ctest
    ;;
  fuzz)
    ensure_packages "${fuzz_packages[@]}"
    build_preset fuzz
    run_fuzz
    ;;
  tidy)
    ensure_packages "${tidy_packages[@]}"
    build_preset dev -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
    # build/dev may have been configured by hand, without it
    [[ -f $root/build/dev/compile_commands.json ]] ||
      cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$root/build/dev" >"$work/configure"
    run_tidy
    ;;
  bench)
    ensure_packages "${bench_packages[@]}"
    folder=bench build_preset release -DVITRINE_BENCH=ON
    run_benchmarks
    ;;
esac

if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi
