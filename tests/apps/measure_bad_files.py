# SPDX-License-Identifier: Apache-2.0
"""Feeds malformed model folders to the release binary and measures what each costs.

measure_bad_files.py BINARY FOLDER

FOLDER holds one folder a case; VITRINE_DUMP_BAD_FILES=FOLDER makes the test programs write them. Each must
end with exit code 1 or 2 and one clear line that names the file, within 100 ms and 64 MiB above an empty
start (`vitrine --version`). The exit code is 1 when one does not. Time is the best of three. Memory is the
largest resident size that the kernel reports, which is never below what the child shares with this script at
the fork (about 10 MiB): an excess can be larger than shown by at most that.
"""

import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

MOST_SECONDS = 0.100
MOST_BYTES = 64 << 20
RUNS = 3
SHOWN = 10


@dataclass
class Measured:
    name: str
    status: int
    seconds: float
    peak_bytes: int
    out: str
    err: str
    faults: list = field(default_factory=list)


def run_once(command, out, err):
    """(wait status, seconds, peak bytes). A vforked child would begin with all our memory as its peak."""
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.execv(command[0], command)
        finally:
            os._exit(126)
    _, status, usage = os.wait4(pid, 0)
    return status, time.monotonic() - start, usage.ru_maxrss * 1024


def measure(name, command):
    """The best time and the largest memory of some runs; output and status of the last."""
    seconds, peaks = [], []
    for _ in range(RUNS):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status, took, peak = run_once(command, out, err)
            seconds.append(took)
            peaks.append(peak)
            out.seek(0)
            err.seek(0)
            texts = [stream.read().decode("utf-8", "replace") for stream in (out, err)]
    return Measured(name, status, min(seconds), max(peaks), *texts)


def command_for(binary, case):
    """A lone tokenizer.json goes to `tokenize`, everything else is a model."""
    files = [path.name for path in case.iterdir()]
    if files and all(name.startswith("tokenizer") for name in files):
        return [binary, "tokenize", "--model", str(case), "x"]
    return [binary, "run", "--model", str(case), "--ids", "1,2,3", "--max-tokens", "1", "--json"]


def find_faults(found, case, empty):
    lines = found.err.splitlines()
    code = os.waitstatus_to_exitcode(found.status)
    if code < 0:
        yield f"died of signal {-code}"
    elif code not in (1, 2):
        yield f"exit code {code}"
    if found.out:
        yield "wrote to standard output"
    if len(lines) != 1 or not lines[0].startswith("vitrine: ") or len(lines[0]) > 1000:
        yield f"{len(lines)} lines on standard error, expected one clear line"
    if str(case) not in found.err:
        yield "does not name the file"
    if found.seconds - empty.seconds > MOST_SECONDS:
        yield f"{1000 * (found.seconds - empty.seconds):.0f} ms above the empty start"
    if found.peak_bytes - empty.peak_bytes > MOST_BYTES:
        yield f"{(found.peak_bytes - empty.peak_bytes) / (1 << 20):.0f} MiB above the empty start"


def print_table(title, measured, empty):
    print(f"\n{title}")
    print("     ms  above    MiB  above  case")
    for m in measured[:SHOWN]:
        print(
            f"{1000 * m.seconds:7.1f} {1000 * (m.seconds - empty.seconds):6.1f} "
            f"{m.peak_bytes / (1 << 20):6.1f} "
            f"{(m.peak_bytes - empty.peak_bytes) / (1 << 20):6.1f}  {m.name}"
        )


def print_faults(measured):
    for m in measured:
        for fault in m.faults:
            print(f"FAULT {m.name}: {fault}\n      {(m.err or m.out)[:300].strip()}")


def measure_all(binary, folder, empty):
    for case in sorted(path for path in folder.iterdir() if path.is_dir()):
        found = measure(case.name, command_for(binary, case))
        found.faults = list(find_faults(found, case, empty))
        yield found


def main(binary, folder):
    binary = str(Path(binary).resolve())
    empty = min((measure("--version", [binary, "--version"]) for _ in range(5)), key=lambda m: m.peak_bytes)
    measured = list(measure_all(binary, Path(folder).resolve(), empty))
    if not measured:
        sys.exit(f"{folder}: no cases")
    print(f"Empty start: {1000 * empty.seconds:.1f} ms, {empty.peak_bytes / (1 << 20):.1f} MiB")
    slowest = sorted(measured, key=lambda m: -m.seconds)
    largest = sorted(measured, key=lambda m: -m.peak_bytes)
    print_table("Slowest", slowest, empty)
    print_table("Largest", largest, empty)
    print()
    print_faults(measured)
    bad = sum(bool(m.faults) for m in measured)
    print(
        f"{len(measured)} malformed folders, {len(measured) - bad} refused as they should be, "
        f"{bad} with faults; "
        f"at most {1000 * (slowest[0].seconds - empty.seconds):.1f} ms and "
        f"{(largest[0].peak_bytes - empty.peak_bytes) / (1 << 20):.1f} MiB above the empty start"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
