#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ./run.sh "The capital of France is" [options of `vitrine run`]
# Installs the Debian packages that are missing and builds what has changed, then runs. Standard output is vitrine's alone.
set -euo pipefail

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"

ensure_packages "${run_packages[@]}"
build_preset release
# From the caller's folder: paths in the arguments are relative to it.
exec "$root/build/release/vitrine" run "$@"
