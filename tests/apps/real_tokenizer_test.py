# SPDX-License-Identifier: Apache-2.0
"""All tokenizer vectors through the program, with the real tokenizer.json of Qwen3."""

import json
import unittest

from program import DATA, vitrine, ProgramTest, real_tokenizer


class RealTokenizer(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = real_tokenizer()
        if self.model is None:
            self.skipTest(
                "needs the real Qwen3 tokenizer.json: set VITRINE_QWEN3_DIR to a folder that holds it"
            )
        self.vectors = json.loads((DATA / "tokenizer/qwen3.json").read_text(encoding="utf-8"))

    def batch(self, values, *options):
        lines = "".join(json.dumps(value) + "\n" for value in values).encode()
        result = vitrine("tokenize", "--batch", "--model", str(self.model), *options, stdin=lines)
        self.assert_runs(result)
        found = [json.loads(line) for line in result.out.decode("utf-8").split("\n")[:-1]]
        self.assertEqual(len(found), len(values))
        return found

    def assert_all(self, found, expected, inputs):
        wrong = [case for case in zip(inputs, found, expected) if case[1] != case[2]]
        self.assertEqual(wrong[:3], [], f"{len(wrong)} of {len(found)} differ (input, found, expected)")

    def test_encode(self):
        vectors = self.vectors["vectors"]
        texts = [vector["text"] for vector in vectors]
        self.assert_all(self.batch(texts, "--special", "parse"), [vector["ids"] for vector in vectors], texts)

    def test_encode_special_strings_as_text(self):
        vectors = self.vectors["vectors"]
        expected = [vector.get("ids_without_added", vector["ids"]) for vector in vectors]
        texts = [vector["text"] for vector in vectors]
        self.assert_all(self.batch(texts, "--special", "text"), expected, texts)

    def test_long_runs(self):
        runs = self.vectors["runs"]
        for run, ids in zip(runs, self.batch([run["repeat"] * run["count"] for run in runs]), strict=True):
            with self.subTest(repeat=run["repeat"]):
                self.assertEqual(len(ids), run["num_ids"])
                self.assertEqual(
                    (ids[: len(run["first"])], ids[-len(run["last"]) :]), (run["first"], run["last"])
                )

    def test_decode(self):
        vectors = json.loads((DATA / "tokenizer/decode.json").read_text(encoding="utf-8"))["vectors"]
        ids = [vector["ids"] for vector in vectors]
        self.assert_all(self.batch(ids, "--decode"), [vector["text"] for vector in vectors], ids)
        skipped = [vector.get("text_skip_special", vector["text"]) for vector in vectors]
        self.assert_all(self.batch(ids, "--decode", "--skip-special"), skipped, ids)


if __name__ == "__main__":
    unittest.main(verbosity=2)
