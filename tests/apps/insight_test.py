# SPDX-License-Identifier: Apache-2.0
"""The commands that tell about a model and a run: `info` and `explain`."""

import unittest

from program import DATA, TINY, FRANCE, FRANCE_IDS, EXACT, vitrine, france, columns, ProgramTest


class InfoTest(ProgramTest):
    def test_text(self):
        result = vitrine("info")
        self.assert_runs(result)
        text = result.out.decode()
        for part in (
            "qwen3",
            "8 layers",
            "4,575,424",
            "9.2 MB",
            "3,840",
            "1,024",
            "4 query heads on 2 KV heads of 64",
            "KV cache",
            "4.1 kB a token, bf16",
            "one pool that all requests share; memory is taken as it is used",
            "for later requests that begin alike",
            "fits",
            "Kernels",
            "Threads",
        ):
            self.assertIn(part, text)

    def test_json(self):
        result = vitrine("info", "--json", "--threads", "2")
        answer = self.json_line(result)
        self.assertEqual(result.err, "")
        expected = {
            "model": "demo",
            "architecture": "qwen3",
            "parameters": 4575424,
            "weight_bytes": 9159424,
            "layers": 8,
            "hidden_size": 192,
            "intermediate_size": 576,
            "query_heads": 4,
            "kv_heads": 2,
            "head_dim": 64,
            "vocab_size": 3840,
            "max_position_embeddings": 1024,
            "context": 1024,
            "max_sequences": 64,
            "fits": True,
            "precision": "default",
            "weights": "bf16",
            "rounded_from": "",
            "kv": "bf16",
            "weight_cache_file": "",
            "threads": 2,
        }
        self.assertEqual({key: answer[key] for key in expected}, expected)
        self.assertEqual(sorted(answer["eos_ids"]), [3748, 3750])
        self.assertEqual(sum(part["parameters"] for part in answer["parts"].values()), 4575424)
        self.assertEqual(sum(part["bytes"] for part in answer["parts"].values()), 9159424)
        self.assertEqual(answer["kv_bytes"], answer["cache_tokens"] * answer["kv_bytes_per_token"])
        self.assertEqual(
            answer["needed_bytes"], answer["weight_bytes"] + answer["kv_bytes"] + answer["workspace_bytes"]
        )

    def test_says_what_was_rounded(self):
        def weights(model, *options):
            text = vitrine("info", "--model", str(DATA / "models" / model), *options).out.decode()
            return next(line for line in text.splitlines() if line.startswith("Weights")).split(", ", 1)[1]

        self.assertEqual(weights("qwen3-f32"), "bf16, rounded from F32")
        self.assertEqual(weights("qwen3-f16"), "bf16, rounded from F16")
        self.assertEqual(weights("qwen3-tiny"), "bf16")
        self.assertEqual(weights("qwen3-f32", *EXACT), "as stored")
        self.assertEqual(weights("qwen3-f32", "--weights", "int8"), "int8")
        answer = self.json_line(vitrine("info", "--json", "--model", str(DATA / "models/qwen3-f32")))
        self.assertEqual((answer["weights"], answer["rounded_from"]), ("bf16", "F32"))

    def test_context_and_room(self):
        plain = self.json_line(vitrine("info", "--json"))
        per_token = plain["kv_bytes_per_token"]
        self.assertGreaterEqual(plain["cache_tokens"], plain["context"])
        self.assertLessEqual(plain["prefix_cache_tokens"], plain["cache_tokens"])
        answer = self.json_line(vitrine("info", "--json", "--context", "256"))
        self.assertEqual(answer["context"], 256)
        for memory, tokens in (("256", 256), ("257", 288), ("2MB", 480), ("2 mb", 480), ("2MiB", 512),
                               ("0.001GB", 224), ("1000000B", 224)):  # in blocks of 32 tokens
            with self.subTest(memory=memory):
                answer = self.json_line(vitrine("info", "--json", "--kv-memory", memory))
                self.assertEqual((answer["cache_tokens"], answer["context"]), (tokens, 1024))
                self.assertEqual(answer["kv_bytes"], tokens * per_token)
                self.assertEqual(answer["prefix_cache_tokens"], tokens)
                self.assertEqual(answer["prefix_cache_bytes"], tokens * per_token)
                self.assertEqual(plain["needed_bytes"] - answer["needed_bytes"],
                                 plain["kv_bytes"] - answer["kv_bytes"])
        text = vitrine("info", "--kv-memory", "256").out.decode()
        self.assertIn("256 tokens, 1.0 MB", text)

    def test_what_is_no_room(self):
        for memory in ("2XB", "GB", "-1", "-1GB", "0", "0GB", "1.5", "1e3", "1e3MB", "nan", "infGB", "8192 tokens",
                       "99999999999999999999", "9999999999TB", "\x1b[31m", "2GB "):
            with self.subTest(memory=memory):
                result = vitrine("info", "--kv-memory=" + memory)
                self.assert_refuses(result, 2, "--kv-memory: expected a size such as 2GB or 500MB, or a number of "
                                               "tokens such as 8192, found ")
                self.assertNotIn("\x1b", result.err)
        self.assert_refuses(vitrine("info", "--kv-memory", "1kB"), 2, "1000", "bytes of a block")
        self.assert_refuses(vitrine("run", FRANCE, "--kv-memory", "2XB"), 2, '--kv-memory: expected', '"2XB"')
        self.assert_refuses(vitrine("explain", FRANCE, "--kv-memory", "x"), 2, "--kv-memory")
        self.assert_refuses(vitrine("bench", "--kv-memory", "x"), 2, "--kv-memory")
        self.assert_refuses(vitrine("bench", "engine", "--kv-memory", "x"), 2, "--kv-memory")


class ExplainTest(ProgramTest):
    PROMPTS = [
        [FRANCE],
        [FRANCE, "--greedy", "--top", "20"],
        ["x"],
        ["Сталіца 東京 は 👩‍👩‍👧‍👦 é\u0301 \t\x1b \u200b ½ Ⅻ ﬁ 🇧🇾"],
        ["word " * 400],
        ["--model", str(TINY), "--ids", "1,2,3,4,5,6,7,8,9,10"],
        [
            FRANCE,
            "--temperature",
            "1.5",
            "--top-k",
            "0",
            "--top-p",
            "0.99",
            "--min-p",
            "0.001",
            "--seed",
            "18446744073709551615",
            "--repetition-penalty",
            "1.1",
            "--presence-penalty",
            "0.5",
            "--frequency-penalty",
            "0.25",
            "--logit-bias",
            "5:1",
            "--top",
            "12",
        ],
    ]

    def test_readable_at_100_columns(self):
        for args in self.PROMPTS:
            with self.subTest(args=[arg[:40] for arg in args]):
                result = vitrine("explain", *args)
                self.assert_runs(result)
                self.assertEqual(result.err, "")
                wide = [line for line in result.out.decode().split("\n") if columns(line) > 100]
                self.assertEqual(wide, [])

    def test_real_numbers(self):
        text = vitrine("explain", FRANCE, "--greedy", *EXACT).out.decode()
        for part in ('839  " France"', '" Paris"', "0.9313", "14.9311", "RMS", "KV"):
            self.assertIn(part, text)
        for station in range(1, 9):
            self.assertRegex(text, rf"\n── {station} [A-Z]")

    def test_json(self):
        result = vitrine("explain", FRANCE, "--greedy", *EXACT, "--json")
        answer = self.json_line(result)
        self.assertEqual(result.err, "")
        self.assertEqual([token["id"] for token in answer["tokens"]], FRANCE_IDS)
        self.assertEqual(len(answer["layers"]), 8)
        self.assertEqual(answer["top"], self.json_line(france())["top"])
        self.assertEqual((answer["likeliest"], answer["chosen"], answer["output_ids"]), (951, 951, [951]))
        last = answer["layers"][-1]["read_out"]["top"][0]
        self.assertEqual(last["id"], 951)
        self.assertAlmostEqual(last["probability"], answer["top"][0]["probability"], delta=1e-6)
        for layer in answer["layers"]:
            self.assertEqual(len(layer["head_groups"]), 2)
            self.assertLessEqual(sum(at["weight"] for at in layer["head_groups"][0]["strongest"]), 1.00001)

    def test_json_without_a_tokenizer(self):
        answer = self.json_line(vitrine("explain", "--model", str(TINY), "--ids", "1,2,3", "--json"))
        self.assertEqual([token["token"] for token in answer["tokens"]], [None] * 3)
        self.assertIsNone(answer["text"])

    def test_it_tells_what_run_does(self):
        options = ("--temperature", "1.5", "--seed", "11")
        told = self.json_line(vitrine("explain", FRANCE, *options, "--json"))
        done = self.run_json(FRANCE, *options, "--max-tokens", "1")
        self.assertEqual(told["output_ids"], done["output_ids"])

    def test_refusals(self):
        self.assert_refuses(vitrine("explain", ""), 2, "empty")
        self.assert_refuses(vitrine("explain", FRANCE, "--temperature", "-1"), 2, "temperature")
        self.assert_refuses(vitrine("explain", FRANCE, "--top", "0"), 2, "--top")


# ---- Model folders -----------------------------------------------------------------------------------------


if __name__ == "__main__":
    unittest.main(verbosity=2)
