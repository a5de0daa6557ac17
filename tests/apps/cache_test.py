# SPDX-License-Identifier: Apache-2.0
"""vitrine cache: what is listed, what is removed."""

import hashlib
import json
import math
import os
import re
import struct
import time
import unittest

from program import DEMO, ProgramTest, columns, vitrine

PAGE = 4096


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def packed_file(model, form, data_pages=1):
    """A file as src/checkpoint/packed_format.h describes it, with one entry."""
    begin = PAGE * (1 + data_pages)
    directory = text(model) + text("7" * 64) + text(form)
    directory += text("w") + text("int8 [2]") + struct.pack("<QQ", PAGE, 2)
    front = b"VITRPACK" + struct.pack("<IIQQQ", 1, 5, begin + len(directory), begin, len(directory))
    digest = hashlib.sha256(front.ljust(PAGE, b"\0") + directory).digest()
    return (front + digest).ljust(PAGE, b"\0") + b"x" * PAGE * data_pages + directory


class CacheTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.folder = self.temp / "cache"

    def cache(self, *args, **changes):
        return vitrine("cache", *args, env={"VITRINE_CACHE": str(self.folder), **changes})

    def put(self, name, data, age_s):
        self.folder.mkdir(exist_ok=True)
        path = self.folder / name
        path.write_bytes(data)
        os.utime(path, (time.time() - age_s,) * 2)
        return path

    def put_three(self):
        return [
            self.put("Qwen3.int4.0123456789ab.packed", packed_file("Qwen3-0.6B", "int4", 300), 100),
            self.put("m.int8.000000000000.packed", packed_file("模型", "int8"), 200),
            self.put("broken.int8.111111111111.packed", b"cut off", 300),
        ]

    def test_lists_as_json(self):
        paths = self.put_three()
        self.put("notes.packed", b"not ours", 0)
        answer = self.json_line(self.cache("list", "--json"))
        self.assertEqual(list(answer), ["folder", "budget_bytes", "total_bytes", "files"])
        self.assertEqual(answer["folder"], str(self.folder))
        self.assertEqual(answer["budget_bytes"], 8_000_000_000)
        self.assertEqual(answer["total_bytes"], sum(path.stat().st_size for path in paths))
        self.assertEqual([file["path"] for file in answer["files"]], [str(path) for path in paths])
        self.assertEqual([file["model"] for file in answer["files"]], ["Qwen3-0.6B", "模型", paths[2].name])
        self.assertEqual([file["weights"] for file in answer["files"]], ["int4", "int8", ""])
        self.assertEqual([file["bytes"] for file in answer["files"]], [path.stat().st_size for path in paths])
        for file, path in zip(answer["files"], paths):
            self.assertEqual(file["last_used"], int(path.stat().st_mtime))

    def test_lists_as_a_table(self):
        paths = self.put_three()
        result = self.cache("list", VITRINE_CACHE_BUDGET="20GB", TZ="UTC")
        self.assert_runs(result)
        lines = result.out.decode().splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual(lines[0].split(), ["Model", "Weights", "Size", "Last", "used", "File"])
        # The columns stand below each other, whatever the script.
        starts = {columns(line[: line.index(word)]) for line, word in zip(lines, ["File", *map(str, paths)])}
        self.assertEqual(len(starts), 1, lines)
        used = time.strftime("%Y-%m-%d %H:%M", time.gmtime(paths[0].stat().st_mtime))
        self.assertIn(f"1.2 MB  {used}", lines[1])
        self.assertIn("damaged", lines[3])
        self.assertEqual(lines[4], f"1.2 MB of 20.00 GB in {self.folder}")

    def test_control_characters_stay_off_the_terminal(self):
        self.put("m.int8.000000000000.packed", packed_file("a\x1b[2J\nb", "int8"), 0)
        result = self.cache("list")
        self.assert_runs(result)
        self.assertNotIn(b"\x1b", result.out)
        self.assertIn(rb"a\x1B[2J\nb", result.out)

    def test_clear(self):
        paths = self.put_three()
        leftover = self.put(".m.int8.000000000000.packed.1-0123456789abcdef.part", b"x" * 100_000, 1000)
        other = self.put("notes.packed", b"not ours", 0)
        result = self.cache("clear")
        self.assert_runs(result)
        self.assertRegex(result.out.decode(), f"^1\\.[23] MB freed in {re.escape(str(self.folder))}\n$")
        self.assertEqual([path for path in [*paths, leftover, other] if path.exists()], [other])
        result = self.cache("clear")
        self.assert_runs(result)
        self.assertEqual(result.out.decode(), f"Nothing to remove in {self.folder}.\n")

    def test_empty(self):
        result = self.cache("list")
        self.assert_runs(result)
        self.assertEqual(result.out.decode(), f"No packed weights in {self.folder} (room for 8.00 GB).\n")
        self.assertEqual(self.json_line(self.cache("list", "--json"))["files"], [])
        self.assertFalse(self.folder.exists())

    def test_the_folder_follows_the_environment(self):
        base = {"VITRINE_CACHE": None}
        for changes, folder in [
            ({"XDG_CACHE_HOME": "/caches", "HOME": "/home/x"}, "/caches/vitrine"),
            ({"HOME": "/home/x"}, "/home/x/.cache/vitrine"),
        ]:
            answer = self.json_line(vitrine("cache", "list", "--json", env={**base, **changes}))
            self.assertEqual(answer["folder"], folder)
        for command in (["list"], ["clear"]):
            result = vitrine("cache", *command, env={**base, "HOME": None})
            self.assert_runs(result)
            self.assertIn(b"No packed weights" if command == ["list"] else b"Nothing to remove", result.out)

    def test_refusals(self):
        self.assert_refuses(self.cache("list", VITRINE_CACHE_BUDGET="lots"), 2, "VITRINE_CACHE_BUDGET", "20GB", '"lots"')
        self.assert_refuses(self.cache(), 2)
        self.assert_refuses(self.cache("shrink"), 2)
        self.assert_refuses(self.cache("clear", "--json"), 2)
        self.folder.write_bytes(b"")
        self.assert_refuses(self.cache("list"), 1, str(self.folder), "cannot be listed")
        self.assert_refuses(self.cache("clear"), 1, str(self.folder))

    def large_model(self):
        """The demo model with a vocabulary that makes its packed weights worth a file; all weights are zero."""
        folder = self.copy_of(DEMO)
        path = folder / "model.safetensors"
        data = path.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        rows, end = 200_000, 0
        self.edit(folder, "config.json", {"vocab_size": rows})
        header["model.embed_tokens.weight"]["shape"][0] = rows
        for name, tensor in header.items():
            if name != "__metadata__":
                begin, end = end, end + 2 * math.prod(tensor["shape"])
                tensor["data_offsets"] = [begin, end]
        front = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(front)) + front)
        os.truncate(path, 8 + len(front) + end)
        return folder

    def test_a_broken_tokenizer_is_found_before_anything_is_packed(self):
        model = self.large_model()
        load = ("run", "--ids", "1", "--max-tokens", "1", "--model", str(model))
        env = {"VITRINE_CACHE": str(self.folder)}
        for file in ("tokenizer.json", "tokenizer_config.json"):
            good = (model / file).read_bytes()
            (model / file).write_bytes(good[: len(good) // 2])
            self.assert_refuses(vitrine(*load, env=env), 1, str(model / file))
            self.assertFalse(self.folder.exists())  # which packing makes first of all
            (model / file).write_bytes(good)
        self.assert_runs(vitrine(*load, env=env))  # else the test would show nothing
        self.assertEqual(len(list(self.folder.glob("*.packed"))), 1)

    def test_help(self):
        result = self.cache("--help")
        self.assert_runs(result)
        for word in (b"list", b"clear", b"VITRINE_CACHE", b"Example: vitrine cache list"):
            self.assertIn(word, result.out)


if __name__ == "__main__":
    unittest.main()
