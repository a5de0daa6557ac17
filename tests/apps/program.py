# SPDX-License-Identifier: Apache-2.0
"""Starts the program and looks at what it printed; the names that all tests of it use.

VITRINE_BINARY names the program, VITRINE_SOURCE_DIR the source tree; by default build/release/vitrine of this one.
"""

import collections
import functools
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
import unicodedata
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("VITRINE_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BINARY = str(Path(os.environ.get("VITRINE_BINARY", SOURCE / "build/release/vitrine")).resolve())
DEMO = SOURCE / "share/vitrine/demo"
DATA = SOURCE / "tests/data"
TINY = DATA / "models/qwen3-tiny"
FRANCE = "The capital of France is"
FRANCE_IDS = [271, 268, 267, 839, 261]
STORY = "Once upon a time"
STORY_START = " there was a curious rabbit called Janka."
EXACT = ("--precision", "exact")
TIMEOUT_S = 240

Result = collections.namedtuple("Result", "code out err")


# ---- Running the program -----------------------------------------------------------------------------------


def environment(changes=None):
    """This one's, without what would change the results; None in `changes` removes a variable."""
    hidden = {"VITRINE_ISA", "NO_COLOR", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}
    hidden |= {"VITRINE_CACHE", "VITRINE_CACHE_BUDGET"}
    merged = {name: value for name, value in os.environ.items() if name not in hidden}
    merged.update(changes or {})
    return {name: value for name, value in merged.items() if value is not None}


def vitrine(*args, stdin=None, env=None, cwd="/"):
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(
        [BINARY, *args],
        capture_output=True,
        env=environment(env),
        cwd=cwd,
        timeout=TIMEOUT_S,
        check=False,
        **source,
    )
    return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def start(*args, **options):
    return subprocess.Popen([BINARY, *args], env=environment(), cwd="/", **options)


@functools.cache
def france():
    """The command of the documentation, once."""
    return vitrine("run", FRANCE, "--max-tokens", "8", "--greedy", "--top", "5", *EXACT, "--json")


def wait_until_it_catches(process, number):
    """Until the program has a handler for that signal: before, it would simply die."""
    give_up = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up and process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
        if caught and int(caught[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError(f"the program never caught {number!r}; exit code {process.poll()}")


def spelled_twice(pairs):
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise AssertionError(f"the same key twice in {names}")
    return dict(pairs)


def columns(line):
    """Of the line on a terminal."""

    def width(char):
        if unicodedata.category(char) in ("Mn", "Me", "Cf"):
            return 0
        return 2 if unicodedata.east_asian_width(char) in "WF" else 1

    return sum(width(char) for char in line)


def stored_ints(model, name):
    """An I64 tensor of tests/data/models/MODEL/expected.safetensors."""
    return list(stored(model, name, "q"))


def stored(model, name, code):
    data = (DATA / "models" / model / "expected.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + length])[name]["data_offsets"]
    return struct.unpack(
        f"<{(end - begin) // struct.calcsize(code)}{code}", data[8 + length + begin : 8 + length + end]
    )


class ProgramTest(unittest.TestCase):
    """Checks shared by all."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="vitrine_cli_")
        self.addCleanup(folder.cleanup)
        self.temp = Path(folder.name)

    def assert_runs(self, result):
        self.assertEqual(result.code, 0, result.err)

    def assert_refuses(self, result, code, *parts):
        """The exit code, nothing on standard output, and a short message that names what is wrong."""
        self.assertEqual(result.code, code, result)
        self.assertEqual(result.out, b"")
        self.assertNotRegex(result.err, r"terminate called|Sanitizer|exception\.|basic_string|stoi")
        self.assertLess(len(result.err), 2000)
        for part in parts:
            self.assertIn(part, result.err)
        self.assertTrue(result.err.strip())

    def json_line(self, result):
        """Exactly one line of valid UTF-8 JSON."""
        self.assert_runs(result)
        text = result.out.decode("utf-8")
        self.assertTrue(text.endswith("\n"), text[-100:])
        self.assertEqual(text.count("\n"), 1)
        return json.loads(text, object_pairs_hook=spelled_twice)

    def run_json(self, *args, **options):
        return self.json_line(vitrine("run", *args, "--json", **options))

    def assert_is_france(self, answer):
        self.assertEqual(answer["prompt_ids"], FRANCE_IDS)

    def copy_of(self, model, name="model"):
        """A copy to edit."""
        return Path(shutil.copytree(model, self.temp / name))

    def edit(self, folder, name, changes):
        """Sets keys of a JSON file of a copy_of(); None is null, `...` removes the key."""
        path = folder / name
        values = {**json.loads(path.read_text(encoding="utf-8")), **changes}
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}), encoding="utf-8")
        return folder


# ---- run ---------------------------------------------------------------------------------------------------


def real_tokenizer():
    """The folder with Qwen3's tokenizer.json, or None."""
    folders = [os.environ.get("VITRINE_QWEN3_DIR"), SOURCE.parent / "shared/data/qwen3-tokenizer"]
    return next(
        (Path(folder) for folder in folders if folder and (Path(folder) / "tokenizer.json").exists()), None
    )
