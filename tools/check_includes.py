#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the include rules: downwards only, no cycles, #pragma once in headers, an SPDX line in every source file.

Usage: tools/check_includes.py [ROOT]     prints each violation as FILE:LINE: WHAT; exits 1 if there is one.
"""
import os
import re
import sys
from pathlib import Path

# ---- The table -------------------------------------------------------------------------------------------------------
# A folder may include its own files, the standard library, other people's libraries, and of ours only what stands here:
# a folder under src/, one file of it, or public headers.

ERRORS_AND_TYPES = ["<vitrine/error.h>", "<vitrine/types.h>"]  # everyone's
ANY_PUBLIC = ["<vitrine/*>"]

ALLOWED = {
    "include/vitrine": ANY_PUBLIC,
    "src/base": ERRORS_AND_TYPES,
    "src/quant": ["base", *ERRORS_AND_TYPES],
    "src/kernels": ["quant/packed.h", "base/float16.h", *ERRORS_AND_TYPES],  # and see INSTRUCTION_SET_FILES
    "src/tensor": ["base", *ERRORS_AND_TYPES],
    "src/checkpoint": ["tensor", "quant", "base", *ERRORS_AND_TYPES],
    "src/ops": ["kernels", "quant", "tensor", "base", "<vitrine/probe.h>", "<vitrine/profile.h>",
                *ERRORS_AND_TYPES],
    "src/cache": ["tensor", "kernels", "base", *ERRORS_AND_TYPES],
    "src/models": ["ops", "cache", "checkpoint", "tensor", "kernels", "quant", "base", "<vitrine/probe.h>", *ERRORS_AND_TYPES],
    # text and engine are what the public headers are made of
    "src/text": ["base", "<vitrine/tokenizer.h>", "<vitrine/chat.h>", *ERRORS_AND_TYPES],
    "src/engine": ["models", "ops", "cache", "checkpoint", "tensor", "kernels", "text", "base", *ANY_PUBLIC],
    "src/insight": ["base", *ANY_PUBLIC],
    "src/server": ["base", *ANY_PUBLIC],
    "apps": ANY_PUBLIC,
    "examples": ANY_PUBLIC,
}

# Compiled with -m flags of their own, which leak through every inline function (the linker keeps one copy of each, for
# all machines). So these files, and the headers of kernels/ that they reach, include nothing else.
INSTRUCTION_SET_FILES = re.compile(r"src/kernels/((avx|amx|neon|sve|sse)\w*\.cpp|simd_\w+\.h)")
PLAIN_HEADERS = ("src/kernels/", "src/quant/packed.h")
INSTRUCTION_SET_MAY = {"immintrin.h", "arm_neon.h", "cstdint"}
PLAIN_HEADER_MAY = {"cstdint", "cstddef"}

# ---- The check -------------------------------------------------------------------------------------------------------

CPP = {".h", ".hpp", ".cpp", ".cc"}
HEADERS = {".h", ".hpp"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>|(\S.*))')
SPDX = "SPDX-License-Identifier: Apache-2.0"


def walk(root):
    """Paths relative to root, sorted. Not the build trees, hidden folders (but .ci) or committed test data."""
    for folder, names, files in os.walk(root):
        here = Path(folder).relative_to(root)
        names[:] = sorted(
            name for name in names
            if name not in ("build", "__pycache__") and (name == ".ci" or not name.startswith("."))
            and (here / name).as_posix() != "tests/data" and not (Path(folder) / name / "CMakeCache.txt").exists())
        for name in sorted(files):
            yield here / name


def wants_spdx(root, path):
    if path.suffix in CPP or path.suffix in (".py", ".sh", ".cmake") or path.name == "CMakeLists.txt":
        return True
    if path.name.endswith(".cmake.in"):
        return True
    if path.suffix:
        return False
    with open(root / path, "rb") as file:  # a script without a suffix
        return file.read(2) == b"#!"


def read(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def folder_of(path):
    """The row of the table a path (relative, with slashes) belongs to; None outside of it."""
    parts = path.split("/")
    for row in ("/".join(parts[:2]), parts[0]):
        if len(parts) > 1 and (row in ALLOWED or (row.startswith("src/") and len(parts) > 2)):
            return row
    return None


class Checker:
    def __init__(self, root):
        self.root = Path(root)
        self.violations = []
        self.files = [path.as_posix() for path in walk(self.root)]
        self.sources = [f for f in self.files if Path(f).suffix in CPP and folder_of(f)]
        self.known = set(self.sources)
        self.includes = {}  # file -> [(line, name as written, our file or None)]

    def complain(self, file, line, what):
        self.violations.append(f"{file}:{line}: {what}")

    def resolve(self, file, name, quoted):
        """The file of ours that an include names; None for anyone else's."""
        places = [f"src/{name}", f"include/{name}"]
        if quoted:
            places.insert(0, os.path.normpath(f"{os.path.dirname(file)}/{name}"))
        parts = file.split("/")
        if parts[0] == "apps" and len(parts) > 2:
            places.append(f"apps/{parts[1]}/{name}")
        for place in places:
            if place in self.known:
                return place
        # Not there (yet, or any more), but it can only be meant as ours.
        first = name.split("/")[0]
        if "/" in name and f"src/{first}" in ALLOWED and (quoted or (self.root / "src" / first).is_dir()):
            return f"src/{name}"
        if first == "vitrine" and "/" in name:
            return f"include/{name}"
        return None

    def read_includes(self):
        for file in self.sources:
            found = self.includes[file] = []
            for number, text in enumerate(read(self.root / file), 1):
                match = INCLUDE.match(text)
                if not match:
                    continue
                quoted, angled, other = match.groups()
                if other:
                    self.complain(file, number, f"'#include {other}': only \"…\" and <…> can be checked")
                    continue
                target = self.resolve(file, quoted or angled, bool(quoted))
                if target not in self.known and (target or quoted):
                    self.complain(file, number, f"'{quoted or angled}' is not there")
                found.append((number, quoted or angled, target))

    def check_folders(self):
        for file in self.sources:
            row = folder_of(file)
            if row not in ALLOWED:
                self.complain(file, 1, f"{row}/ is not in the table of tools/check_includes.py")
                continue
            own = "/".join(file.split("/")[:2]) if row == "apps" else row
            for number, name, target in self.includes[file]:
                if target and not target.startswith(own + "/") and not self.allowed(row, target):
                    may = ", ".join(ALLOWED[row])
                    self.complain(file, number, f"{own} may not include '{name}' (of ours only: {may})")

    @staticmethod
    def allowed(row, target):
        where, _, rest = target.partition("/")
        if where == "include":
            return f"<{rest}>" in ALLOWED[row] or "<vitrine/*>" in ALLOWED[row]
        if where == "src":
            return rest in ALLOWED[row] or rest.split("/")[0] in ALLOWED[row]
        return False

    def check_instruction_sets(self):
        pending = [file for file in self.sources if INSTRUCTION_SET_FILES.fullmatch(file)]
        reached = dict.fromkeys(pending)  # header -> the file that led to it
        while pending:
            file = pending.pop()
            is_source = INSTRUCTION_SET_FILES.fullmatch(file)
            may = INSTRUCTION_SET_MAY if is_source else PLAIN_HEADER_MAY
            who = "an instruction-set file" if is_source else f"a header that {reached[file]} reaches"
            for number, name, target in self.includes[file]:
                if target and target.startswith(PLAIN_HEADERS):
                    if target in self.known and target not in reached:
                        reached[target] = file if is_source else reached[file]
                        pending.append(target)
                elif name not in may:
                    self.complain(file, number, f"{who} may not include '{name}' "
                                  f"(only <{'>, <'.join(sorted(may))}> and such headers of kernels/)")

    def check_cycles(self):
        done, trail = set(), []

        def visit(file):
            if file in trail:
                cycle = trail[trail.index(file):] + [file]
                number = next(n for n, _, target in self.includes[cycle[-2]] if target == file)
                self.complain(cycle[-2], number, "cycle: " + " -> ".join(cycle))
                return
            if file in done:
                return
            trail.append(file)
            for _, _, target in self.includes.get(file, []):
                if target:
                    visit(target)
            trail.pop()
            done.add(file)

        for file in self.sources:
            visit(file)

    def check_lines(self):
        for file in self.files:
            if not wants_spdx(self.root, Path(file)):
                continue
            lines = read(self.root / file)
            if not any(SPDX in line for line in lines[:5]):
                self.complain(file, 1, f"no '{SPDX}' line at the top")
            if Path(file).suffix in HEADERS and folder_of(file) and "#pragma once" not in map(str.strip, lines):
                self.complain(file, 1, "no #pragma once")

    def run(self):
        self.read_includes()
        self.check_folders()
        self.check_instruction_sets()
        self.check_cycles()
        self.check_lines()
        return self.violations


def main(arguments):
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    checker = Checker(root)
    violations = checker.run()
    for violation in violations:
        print(violation)
    if violations:
        return 1
    if not checker.sources:
        print(f"includes: no source files under {root}")
        return 1
    print(f"includes: {len(checker.sources)} files, all downwards")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
