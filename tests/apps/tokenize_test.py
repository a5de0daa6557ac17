# SPDX-License-Identifier: Apache-2.0
"""The `tokenize` command."""

import json
import shutil
import unittest

from program import DEMO, TINY, FRANCE, FRANCE_IDS, vitrine, ProgramTest


class TokenizeTest(ProgramTest):
    def batch(self, lines, *options):
        result = vitrine("tokenize", "--batch", *options, stdin="\n".join(lines).encode() + b"\n")
        self.assert_runs(result)
        return [json.loads(line) for line in result.out.decode().split("\n")[:-1]]

    def test_table(self):
        text = vitrine("tokenize", FRANCE).out.decode()
        self.assertRegex(text, r"839 +14-21 +\" France\"\n")
        self.assertRegex(text, r"\n5 tokens, 24 bytes\n$")

    def test_json(self):
        text = "Сталіца <|im_end|> 😀"
        answer = self.json_line(vitrine("tokenize", text, "--json"))
        self.assertEqual(set(answer), {"ids", "tokens"})
        self.assertEqual([token["id"] for token in answer["tokens"]], answer["ids"])
        self.assertEqual(
            {frozenset(token) for token in answer["tokens"]}, {frozenset(("id", "token", "bytes"))}
        )
        ends = [token["bytes"] for token in answer["tokens"]]
        self.assertEqual((ends[0][0], ends[-1][1]), (0, len(text.encode())))
        self.assertTrue(all(before[1] == after[0] for before, after in zip(ends, ends[1:])), ends)
        self.assertIn(3750, answer["ids"])
        decoded = vitrine("tokenize", "--decode", ",".join(map(str, answer["ids"])), "--json")
        self.assertEqual(self.json_line(decoded), {"text": text})

    def test_special_and_skip_special(self):
        plain = self.json_line(vitrine("tokenize", "<|im_end|>", "--json", "--special", "text"))["ids"]
        self.assertNotIn(3750, plain)
        self.assertGreater(len(plain), 3)
        self.assertEqual(vitrine("tokenize", "--decode", "271,3750,268").out, b"The<|im_end|> capital\n")
        self.assertEqual(
            vitrine("tokenize", "--decode", "--skip-special", "-", stdin=b"271 3750 268\n").out,
            b"The capital\n",
        )

    def test_batch(self):
        texts = [FRANCE, "", 'a\nb\t"é\u2028😀\\', "<|im_end|>"]
        found = self.batch(
            [json.dumps(FRANCE), '""', '"a\\nb\\t\\"\\u00e9\\u2028\\ud83d\\ude00\\\\"', '"<|im_end|>"']
        )
        self.assertEqual(found[0], FRANCE_IDS)
        self.assertEqual(found[1], [])
        self.assertEqual(found[3], [3750])
        self.assertEqual(self.batch([json.dumps(text, ensure_ascii=False) for text in texts]), found)
        self.assertEqual(self.batch([json.dumps(ids) for ids in found], "--decode"), texts)
        self.assertNotEqual(self.batch(['"<|im_end|>"'], "--special", "text")[0], [3750])
        path = self.temp / "texts.jsonl"
        path.write_text(json.dumps(FRANCE) + "\r\n" + '"x"', encoding="utf-8")
        result = vitrine("tokenize", "--batch", "--file", str(path))
        self.assertEqual([json.loads(line) for line in result.out.decode().splitlines()][0], FRANCE_IDS)
        self.assertEqual(result.out.count(b"\n"), 2)

    def test_batch_refusals_name_the_line(self):
        bad = (b'"x', b"5", b"[]", b'"\\ud83d"', b"", b'"\xff"', b"[" * 100000)
        for line in bad:
            with self.subTest(line=line[:20]):
                self.assert_stops_at_line_2(
                    vitrine("tokenize", "--batch", stdin=b'"a"\n' + line + b'\n"b"\n')
                )

    def test_batch_decode_refuses_what_is_no_id(self):
        for line in (b"[271,4294967567]", b"[271,-1]", b"[1.5]", b"[true]", b'["271"]', b'"x"', b"271"):
            with self.subTest(line=line):
                self.assert_stops_at_line_2(
                    vitrine("tokenize", "--batch", "--decode", stdin=b"[271]\n" + line)
                )

    def assert_stops_at_line_2(self, result):
        self.assertEqual(result.code, 2, result)
        self.assertEqual(result.out.count(b"\n"), 1)
        self.assertIn("line 2", result.err)
        self.assertLess(len(result.err), 300)

    def test_refusals_are_not_padded(self):
        result = vitrine("tokenize", "--batch", stdin=b"5\n")
        self.assertEqual(result.err, result.err.rstrip() + "\n")

    def test_batch_takes_no_argument(self):
        self.assert_refuses(vitrine("tokenize", "--batch", "hello"), 2, "--batch")

    def test_needs_only_the_tokenizer(self):
        shutil.copy(DEMO / "tokenizer.json", self.temp)
        for model in (self.temp, self.temp / "tokenizer.json"):
            answer = self.json_line(vitrine("tokenize", FRANCE, "--json", "--model", str(model)))
            self.assertEqual(answer["ids"], FRANCE_IDS)
        self.assert_refuses(vitrine("tokenize", "hi", "--model", str(TINY)), 1, str(TINY / "tokenizer.json"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
