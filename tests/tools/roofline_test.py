# SPDX-License-Identifier: Apache-2.0
"""bench/roofline.py on what `vitrine bench --json` printed once: every part is there and where it belongs, no text lies
on another, and bad input is refused in a line."""
import copy
import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "bench" / "roofline.py"
STORED = SOURCE / "tests" / "data" / "bench" / "int8.json"
SVG = "{http://www.w3.org/2000/svg}"
PARTS = ["qkv", "attention", "o_proj", "gate_up", "down_proj", "head"]


def roofline(*args, stdin=b""):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, args)], input=stdin, capture_output=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


def middle(element):
    """Of a marker: a circle, or a path that starts 6 above its middle."""
    if element.tag == SVG + "circle":
        return float(element.get("cx")), float(element.get("cy"))
    x, y = re.match(r"M(\S+) (\S+)", element.get("d")).groups()
    return float(x), float(y) + 6


def boxes(root):
    """(left, top, right, bottom, text) of every upright text, its letters taken to be wide ones."""
    out = []
    for element in root.iter(SVG + "text"):
        if element.get("transform"):
            continue
        classes = (element.get("class") or "").split()
        width = len(element.text) * (9.6 if "title" in classes else 6.6)
        x, y = float(element.get("x")), float(element.get("y"))
        left = x - width if "end" in classes else x - width / 2 if "middle" in classes else x
        out.append((left, y - 10, left + width, y + 3, element.text))
    return out


class RooflineTest(unittest.TestCase):
    def setUp(self):
        self.stored = json.loads(STORED.read_text(encoding="utf-8"))
        folder = tempfile.TemporaryDirectory(prefix="vitrine_roofline_")
        self.addCleanup(folder.cleanup)
        self.temp = Path(folder.name)

    def draw(self, *args, **options):
        code, out, err = roofline(*args, **options)
        self.assertEqual((code, err), (0, ""))
        return xml.fromstring(out)

    def changed(self, change):
        """The picture of the stored figures after `change` was called with them."""
        values = copy.deepcopy(self.stored)
        change(values)
        return self.draw(stdin=json.dumps(values).encode())

    def assert_legible(self, root):
        """Text is inside of the picture and lies on no other."""
        width, height = float(root.get("width")), float(root.get("height"))
        found = boxes(root)
        for i, (left, top, right, bottom, text) in enumerate(found):
            self.assertTrue(left >= 0 and top >= 0 and right <= width and bottom <= height, text)
            for other in found[i + 1 :]:
                apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
                self.assertTrue(apart, f"{text!r} lies on {other[4]!r}")

    def test_every_part(self):
        root = self.draw(STORED)
        self.assertEqual(root.tag, SVG + "svg")
        titles = [element.text for element in root.iter(SVG + "title")]
        for what in ("decode at 2,048", "prefill 512"):
            self.assertEqual(sorted(t.split(":")[0] for t in titles if t.startswith(what)),
                             sorted(f"{what}, {part}" for part in PARTS))
        texts = [element.text for element in root.iter(SVG + "text")]
        for name in ("qkv", "attention", "o", "gate, up", "down", "head"):
            self.assertEqual(texts.count(name), 2, name)
        self.assertEqual(texts[0], "Roofline of Qwen3-0.6B: int8 weights, bf16 cache, amx, 2 threads")
        self.assertTrue(any("activations are left out" in text for text in texts))
        self.assertIn(f"stream {self.stored['stream_gb_per_s']:.1f} GB/s", texts)
        self.assertIn(f"int8 {self.stored['peaks']['int8_gops']:,.0f} Gop/s", texts)
        self.assertIn(f"float {self.stored['peaks']['float_gflops']:,.0f} Gop/s", texts)
        self.assert_legible(root)

    def test_points_are_where_they_belong(self):
        places = []  # log of operations per byte, of operations per second; pixels
        for element in self.draw(STORED).iter():
            title = element.find(SVG + "title")
            if element.tag == SVG + "svg" or title is None:
                continue
            what, part = title.text.split(":")[0].rsplit(", ", 1)
            profile = next(p for p in self.stored["profiles"] if what.startswith(p["what"]))
            self.assertEqual(element.get("class"), profile["what"])
            values = profile["parts"][part]
            places.append((math.log(values["operations"] / values["bytes"]),
                           math.log(values["operations"] / values["seconds"]), *middle(element)))
        self.assertEqual(len(places), 2 * len(PARTS))
        for value, pixel in ((0, 2), (1, 3)):  # along a straight line
            first, last = min(places, key=lambda p: p[value]), max(places, key=lambda p: p[value])
            slope = (last[pixel] - first[pixel]) / (last[value] - first[value])
            self.assertGreater(slope * (1 if value == 0 else -1), 0)
            for place in places:
                self.assertAlmostEqual(place[pixel], first[pixel] + slope * (place[value] - first[value]), delta=0.2)

    def test_light_and_dark(self):
        style = self.draw(STORED).find(SVG + "style").text
        light, dark = style.split("@media (prefers-color-scheme: dark)")
        for name in ("text", ".card", ".quiet", ".grid", ".roof", ".decode", ".prefill"):
            self.assertIn(f"\n  {name} {{", light)
            self.assertIn(f"\n    {name} {{", dark)

    def test_legible_whatever_the_figures(self):
        def slow_kernels(values):  # the peaks bound decoding, too
            values["peaks"] = {"float_gflops": 12, "int8_gops": 13}
            for profile in values["profiles"]:
                for part in profile["parts"].values():
                    part["seconds"] = part.get("operations", 0) / 10e9

        def alike(values):  # all parts in one place
            for profile in values["profiles"]:
                for part in profile["parts"].values():
                    if "bytes" in part:
                        part.update(seconds=0.01, bytes=1e8, operations=1e10)

        def one_peak(values):
            values["peaks"]["float_gflops"] = values["peaks"]["int8_gops"]

        def decode_only(values):
            del values["profiles"][1]

        for change in (slow_kernels, alike, one_peak, decode_only, lambda values: values["profiles"].reverse()):
            with self.subTest(change.__name__):
                self.assert_legible(self.changed(change))

    def test_above_the_roof(self):
        def reads(factor):
            def change(values):
                for profile in values["profiles"]:
                    for part in profile["parts"].values():
                        if "share_of_bound" in part:
                            part["seconds"] *= part["share_of_bound"] * factor

            return [element.text for element in self.changed(change).iter(SVG + "text")]

        above = "More than 100 %: the stream is a median, and a part timed in a faster moment can exceed it."
        self.assertIn(above, reads(0.9))
        texts = reads(1)
        self.assertNotIn(above, texts)
        self.assertEqual(texts.count("100 %"), 2 * len(PARTS))  # the program's bounds are the roofs

    def test_a_panel_a_file(self):
        other = self.temp / "other.json"
        other.write_text(json.dumps({**self.stored, "weights": "bf16", "model": "<&>", "threads": 1}), encoding="utf-8")
        out = self.temp / "out.svg"
        self.assertEqual(roofline(STORED, other, "-o", out), (0, "", ""))
        root = xml.fromstring(out.read_text(encoding="utf-8"))
        texts = [element.text for element in root.iter(SVG + "text")]
        self.assertIn("Roofline of <&>: bf16 weights, bf16 cache, amx, 1 thread", texts)
        self.assertEqual(texts.count("gate, up"), 4)
        self.assert_legible(root)

    def test_standard_input(self):
        self.assertEqual(roofline(STORED), roofline(stdin=STORED.read_bytes()))

    def assert_refuses(self, result, *parts):
        code, out, err = result
        self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
        self.assertTrue(err.startswith("roofline.py: "), err)
        for part in parts:
            self.assertIn(part, err)

    def test_bad_files(self):
        self.assert_refuses(roofline(self.temp / "missing.json"), "missing.json: No such file or directory")
        self.assert_refuses(roofline(self.temp), "Is a directory")
        for content, part in ((b"", "not JSON"), (b"{", "not JSON"), (b"\xff\n", "not JSON"),
                              (b"[" * 100000, "not JSON"), (b"[]", "no profiles"), (b"{}", "no profiles"),
                              (b'{"profiles": []}', "no profiles")):
            with self.subTest(content[:20]):
                self.assert_refuses(roofline(stdin=content), "standard input: ", part)

    def test_bad_values(self):
        decode = self.stored["profiles"][0]
        for where, key, value, part in (
            (self.stored, "stream_gb_per_s", None, "no stream_gb_per_s: it is measured where something decodes"),
            (self.stored, "stream_gb_per_s", "fast", 'expected a number above 0 as stream_gb_per_s, found "fast"'),
            (self.stored, "threads", "two", 'threads, found "two"'),
            (self.stored, "peaks", 3, "expected an object as peaks, found 3"),
            (self.stored["peaks"], "int8_gops", -1, "int8_gops, found -1"),
            (self.stored["peaks"], "float_gflops", math.nan, "float_gflops, found NaN"),
            (self.stored, "profiles", [3], "expected decode or prefill"),
            (decode, "what", "dance", "expected decode or prefill"),
            (decode, "seconds", 0, "decode at 2,048: expected a number above 0 as seconds"),
            (decode, "parts", [], "decode at 2,048: expected an object as parts"),
            (decode["parts"], "head", 3, "decode at 2,048, head: expected an object"),
            (decode["parts"], "head", {"seconds": 1, "bytes": 3}, "head: expected a number above 0 as operations"),
            (decode["parts"], "norm", {"seconds": "a"}, "decode at 2,048, norm: "),
        ):
            with self.subTest(part):
                before = where[key]
                where[key] = value
                self.assert_refuses(roofline(stdin=json.dumps(self.stored).encode()), part)
                where[key] = before

    def test_an_output_that_cannot_be_written(self):
        self.assert_refuses(roofline(STORED, "-o", self.temp / "no" / "out.svg"), "out.svg: No such file or directory")


if __name__ == "__main__":
    unittest.main(verbosity=2)
