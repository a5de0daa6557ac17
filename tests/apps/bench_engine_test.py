# SPDX-License-Identifier: Apache-2.0
"""`bench engine`: its keys, its text, what it refuses. No figure is judged."""

import unittest

from program import TINY, ProgramTest, vitrine

SIZE = ("--requests", "6", "--concurrency", "3", "--prompt-tokens", "70", "--output-tokens", "5", "--threads", "2")


def bench(*options):
    return vitrine("bench", "engine", *options)


class BenchEngineTest(ProgramTest):
    def numbers(self, *options):
        return self.json_line(bench(*SIZE, *options, "--json"))

    def test_documented_keys(self):
        result = bench(*SIZE, "--json")
        answer = self.json_line(result)
        self.assertEqual(result.err, "")
        expected = {
            "kv_blocks_end": 0,
            "kv_blocks_cached": 0,
            "cached_tokens": 0,
            "preemptions": 0,
            "requests": 6,
            "concurrency": 3,
            "prompt_tokens": 70,
            "output_tokens": 5,
            "shared_prefix": 0,
            "rate": None,
            "threads": 2,
            "weights": "bf16",
            "kv": "bf16",
            "model": "demo",
        }
        self.assertEqual({key: answer[key] for key in expected}, expected)
        self.assertNotIn("speculation", answer)
        self.assertAlmostEqual(answer["total_tokens_per_s"], 15 * answer["throughput_tokens_per_s"], delta=1e-3)
        self.assertAlmostEqual(answer["throughput_tokens_per_s"] * answer["seconds"], 30, delta=1e-6)
        for key in ("ttft_ms", "itl_ms"):
            self.assertEqual(list(answer[key]), ["p50", "p90", "p99"])
            self.assertTrue(0 <= answer[key]["p50"] <= answer[key]["p90"] <= answer[key]["p99"], answer[key])
        self.assertTrue(3 <= answer["kv_blocks_peak"] <= answer["kv_blocks"], answer)
        self.assertTrue(0 < answer["batch"]["mean"] <= answer["batch"]["max"] <= 3, answer["batch"])
        self.assertAlmostEqual(answer["batch"]["mean"] * answer["steps"], 30, delta=1e-6)  # a token each
        self.assertTrue(answer["isa"])

    def test_a_shared_prefix_is_computed_once(self):
        answer = self.numbers("--shared-prefix", "64")
        self.assertGreaterEqual(answer["cached_tokens"], 3 * 64)  # all but those that came with the first one
        self.assertLessEqual(answer["cached_tokens"], 5 * 69)
        self.assertGreater(answer["kv_blocks_cached"], 0)
        self.assertEqual((answer["kv_blocks_end"], answer["shared_prefix"]), (0, 64))
        whole = self.numbers("--shared-prefix", "70")
        self.assertGreaterEqual(whole["cached_tokens"], 3 * 64)

    def test_requests_that_come_when_they_like(self):
        for rate in ("1000", "50"):
            answer = self.numbers("--rate", rate)
            self.assertEqual((answer["rate"], answer["kv_blocks_end"]), (float(rate), 0))
            self.assertLessEqual(answer["batch"]["max"], 3)

    def test_speculation(self):
        options = ("--output-tokens", "60", "--requests", "3", "--speculation", "--json")
        answer = self.json_line(bench("--prompt-tokens", "40", *options))
        speculation = answer["speculation"]
        self.assertEqual(list(speculation), ["drafted", "accepted", "steps"])
        self.assertLessEqual(speculation["accepted"], speculation["drafted"])
        self.assertEqual(speculation["steps"], answer["steps"])

    def test_little_memory(self):
        answer = self.numbers("--kv-memory", "128")
        self.assertEqual((answer["kv_blocks"], answer["kv_blocks_end"]), (4, 0))
        self.assertLessEqual(answer["kv_blocks_peak"], 4)

    def test_one_token_has_no_next(self):
        answer = self.json_line(bench("--requests", "1", "--prompt-tokens", "1", "--output-tokens", "1", "--json"))
        self.assertIsNone(answer["itl_ms"])

    def test_other_numbers(self):
        answer = self.json_line(bench("--model", str(TINY), "--requests", "2", "--prompt-tokens", "9",
                                      "--output-tokens", "3", "--precision", "exact", "--json"))
        self.assertEqual((answer["kv"], answer["model"]), ("f32", str(TINY)))

    def test_text(self):
        result = bench(*SIZE, "--shared-prefix", "64")
        self.assert_runs(result)
        self.assertEqual(result.err, "")
        text = result.out.decode()
        self.assertRegex(text, r"^demo: 4\.6 M parameters, .*\n"
                               r"6 requests of 70 \(64 of them the same in all\) \+ 5 tokens, 3 at once: [\d.]+ s\n")
        self.assertRegex(text, r"\nMilliseconds +median +p90 +p99\n"
                               r"to the first token +[\d.]+ +[\d.]+ +[\d.]+\n"
                               r"from token to token +[\d.]+ +[\d.]+ +[\d.]+\n")
        self.assertRegex(text, r"\nThroughput +[\d.]+ tokens/s, [\d.]+ with the prompts\n")
        self.assertRegex(text, r"\nBatch +[\d.]+ requests got a token in a step, 3 at most; \d+ steps\n")
        self.assertRegex(text, r"\nKV cache +\d+ blocks of \d+ in use at most, 0 at the end; "
                               r"\d+ kept for later requests\n")
        self.assertRegex(text, r"\nFound there +\d+ of 420 prompt tokens; 0 preemptions\n")
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)
        self.assertIn("50 a second, 3 at once at most", bench(*SIZE, "--rate", "50").out.decode())

    def test_usage(self):
        for options, parts in (
            (["--requests", "0"], ["--requests"]),
            (["--concurrency", "4097"], ["--concurrency"]),
            (["--prompt-tokens", "0"], ["--prompt-tokens"]),
            (["--output-tokens", "x"], ["--output-tokens"]),
            (["--shared-prefix", "129"], ["--shared-prefix: expected at most the 128", "found 129"]),
            (["--rate", "0"], ["--rate"]),
            (["--rate", "-1"], ["--rate"]),
            (["--prompt-tokens", "1024"], ["the 1,024 tokens of the context", "found 1,152"]),
            (["--prompt-tokens", "2147483648", "--concurrency", "4096"], ["the 1,024 tokens of the context"]),
            (["--kv-memory", "200"], ["the 224 tokens of the KV cache", "found 256"]),
            (["--batch", "8"], ["--batch"]),
        ):
            with self.subTest(options=options):
                self.assert_refuses(bench(*options), 2, *parts)
        self.assert_refuses(vitrine("bench", "--threads", "1", "engine"), 2, '--threads: expected after "engine"')
        self.assert_refuses(bench("--model", "/nonexistent/model"), 1, "/nonexistent/model")


if __name__ == "__main__":
    unittest.main(verbosity=2)
