# SPDX-License-Identifier: Apache-2.0
"""The `run` command: its JSON, how it ends, sampling, the text it prints, where the prompt comes from."""

import json
import os
import re
import shutil
import struct
import subprocess
import unittest

from program import (DEMO, DATA, TINY, FRANCE, FRANCE_IDS, STORY, STORY_START, EXACT, vitrine, start,
                     france, ProgramTest)


class RunJsonTest(ProgramTest):
    def test_one_line_with_the_documented_keys_and_types(self):
        result = france()
        answer = self.json_line(result)
        self.assertEqual(result.err, "")
        types = {
            "model": str,
            "prompt_ids": list,
            "output_ids": list,
            "text": str,
            "finish_reason": str,
            "seed": int,
            "top": list,
            "cached_tokens": int,
            "timings": dict,
            "peak_bytes": int,
            "isa": str,
            "threads": int,
        }
        self.assertEqual({key: type(value) for key, value in answer.items()}, types)
        self.assertEqual({type(i) for i in answer["prompt_ids"] + answer["output_ids"]}, {int})
        seconds = {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"}
        self.assertEqual(set(answer["timings"]), seconds)
        self.assertTrue(
            all(isinstance(v, float) and v >= 0 for v in answer["timings"].values()), answer["timings"]
        )
        for entry in answer["top"]:
            self.assertEqual(
                {k: type(v) for k, v in entry.items()},
                {"id": int, "token": str, "probability": float, "logit": float},
            )
        self.assertEqual(answer["model"], "demo")
        self.assertGreater(answer["peak_bytes"], 1 << 20)

    def test_numbers_round_trip(self):
        answer = self.json_line(france())
        for entry in answer["top"]:
            self.assertEqual(struct.unpack("f", struct.pack("f", entry["logit"]))[0], entry["logit"])
        literals = []
        json.loads(france().out, parse_float=lambda text: literals.append(text) or float(text))
        for text in literals:
            digits = re.sub(r"e.*|\D", "", text).strip("0")
            self.assertLessEqual(len(digits), 17, text)
        again = self.json_line(
            vitrine("run", FRANCE, "--max-tokens", "8", "--greedy", "--top", "5", *EXACT, "--json")
        )
        self.assertEqual(again["top"], answer["top"])

    def test_top_is_the_models_own_distribution(self):
        plain = self.json_line(france())["top"]
        changed = self.run_json(
            FRANCE,
            "--max-tokens",
            "1",
            "--top",
            "5",
            *EXACT,
            "--temperature",
            "0.1",
            "--top-k",
            "1",
            "--repetition-penalty",
            "2",
            "--logit-bias",
            "951:-100",
        )["top"]
        self.assertEqual(changed, plain)
        self.assertEqual(len(plain), 5)
        self.assertEqual(plain, sorted(plain, key=lambda entry: -entry["logit"]))
        self.assertLessEqual(sum(entry["probability"] for entry in plain), 1)

    def test_expected_values_of_the_demo_model(self):
        for case in json.loads((DATA / "demo-model/expected.json").read_text(encoding="utf-8")):
            with self.subTest(prompt=case["prompt"]):
                answer = self.run_json(
                    case["prompt"],
                    "--greedy",
                    "--max-tokens",
                    "48",
                    "--top",
                    "5",
                    *EXACT,
                    "--special",
                    "parse",
                )
                self.assertEqual(answer["prompt_ids"], case["ids"])
                self.assertEqual(answer["output_ids"], case["greedy_ids"])
                self.assertEqual(answer["text"], case["greedy_text"])
                ended = case["greedy_ids"][-1] in (3748, 3750)
                self.assertEqual(answer["finish_reason"], "stop" if ended else "length")
                self.assert_same_top(answer["top"], case["top"])

    def assert_same_top(self, found, expected):
        for ours, theirs in zip(found, expected, strict=True):
            self.assertEqual((ours["id"], ours["token"]), (theirs["id"], theirs["token"]))
            self.assertAlmostEqual(ours["probability"], theirs["probability"], delta=1e-4)
            self.assertAlmostEqual(ours["logit"], theirs["logit"], delta=2e-3)

    def test_ids_are_the_prompt(self):
        by_text = self.json_line(france())
        for spelling in ("271,268,267,839,261", "[271, 268, 267, 839, 261]"):
            by_ids = self.run_json("--ids", spelling, "--max-tokens", "8", "--greedy", "--top", "5", *EXACT)
            for key in ("prompt_ids", "output_ids", "text", "top"):
                self.assertEqual(by_ids[key], by_text[key])

    def test_a_folder_without_a_tokenizer(self):
        answer = self.run_json(
            "--model", str(TINY), "--ids", "1,2,3", "--max-tokens", "4", "--greedy", "--top", "2"
        )
        self.assertIsNone(answer["text"])
        self.assertEqual([entry["token"] for entry in answer["top"]], [None, None])
        self.assertEqual(len(answer["output_ids"]), 4)
        self.assertEqual(answer["model"], str(TINY))
        self.assert_refuses(
            vitrine("run", "--model", str(TINY), "hello"), 1, str(TINY), "tokenizer.json", "ids"
        )

    def test_text_that_ends_inside_a_character(self):
        # The demo spells an emoji in single bytes: forced to the first, the text must still be valid UTF-8.
        answer = self.run_json("hi", "--max-tokens", "1", "--greedy", "--logit-bias", "172:1000")
        self.assertEqual(answer["output_ids"], [172])
        self.assertIn(answer["text"], ("", "\ufffd"))

    def test_a_model_name_that_is_not_utf8(self):
        folder = os.fsencode(self.temp) + b"/\xff"
        shutil.copytree(os.fsencode(DEMO), folder)
        for command in (
            ["run", FRANCE, "--max-tokens", "1"],
            ["info"],
            ["explain", FRANCE],
            ["tokenize", FRANCE],
        ):
            with self.subTest(command=command[0]):
                self.json_line(vitrine(*command, "--json", "--model", folder))

    def test_warnings_go_to_standard_error(self):
        edits = [
            ("qwen3-untied-sharded", {"tie_word_embeddings": True}, "lm_head.weight"),
            ("qwen3-tiny", {"num_hidden_layers": 2}, "model.layers.2."),
        ]
        for name, changes, tensor in edits:
            with self.subTest(changes=changes):
                model = self.edit(self.copy_of(DATA / "models" / name, name), "config.json", changes)
                result = vitrine("run", "--model", str(model), "--ids", "1", "--max-tokens", "1", "--json")
                self.json_line(result)
                self.assertRegex(result.err, "^vitrine: warning: .*" + re.escape(tensor))


class RunEndTest(ProgramTest):
    def test_length(self):
        answer = self.run_json(STORY, "--greedy", "--max-tokens", "3")
        self.assertEqual((len(answer["output_ids"]), answer["finish_reason"]), (3, "length"))

    def test_stop_string(self):
        answer = self.run_json(
            STORY, "--greedy", "--max-tokens", "40", "--stop", "zzz", "--stop", "abbit called"
        )
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(answer["text"], STORY_START[: STORY_START.index("abbit called")])

    def test_streamed_stop_string(self):
        result = vitrine("run", STORY, "--greedy", "--max-tokens", "40", "--stop", "abbit called", "--quiet")
        self.assertEqual(result.out.decode(), " there was a curious r\n")

    def test_eos_and_ignore_eos(self):
        ended = self.json_line(france())
        self.assertEqual(
            (ended["finish_reason"], ended["output_ids"][-1], ended["text"]), ("stop", 3750, " Paris.")
        )
        answer = self.run_json(FRANCE, "--greedy", "--max-tokens", "8", "--ignore-eos", *EXACT)
        self.assertEqual((len(answer["output_ids"]), answer["finish_reason"]), (8, "length"))
        self.assertEqual(answer["output_ids"][:3], ended["output_ids"])

    def test_context_end(self):
        answer = self.run_json(FRANCE, "--greedy", "--ignore-eos", "--context", "16")
        self.assertEqual((len(answer["output_ids"]), answer["finish_reason"]), (11, "length"))

    def test_eos_in_every_file(self):
        """cases.md B08: the union of generation_config, config and tokenizer_config ends the text."""
        im_end, end_of_text = 3750, 3748
        variants = {
            "generation list": ([im_end, end_of_text], 7, "!"),
            "generation int": (im_end, end_of_text, "!"),
            "config int, no generation_config": (None, im_end, "!"),
            "config list, no generation_config": (None, [end_of_text, im_end], "!"),
            "config only": (7, im_end, "!"),
            "tokenizer only": (7, 7, "<|im_end|>"),
        }
        for name, (generation, config, tokenizer) in variants.items():
            with self.subTest(variant=name):
                model = self.model_with_eos(name.replace(" ", "_"), generation, config, tokenizer)
                answer = self.run_json("--model", str(model), FRANCE, "--greedy", "--max-tokens", "12")
                self.assertEqual((answer["finish_reason"], answer["text"]), ("stop", " Paris."))
                self.assertEqual(answer["output_ids"][-1], im_end)
        model = self.temp / "generation_list"
        answer = self.run_json(
            "--model", str(model), "The KV cache keeps", "--greedy", "--max-tokens", "48", *EXACT
        )
        self.assertEqual((answer["finish_reason"], answer["output_ids"][-1]), ("stop", end_of_text))
        self.assertTrue(answer["text"].endswith("computed twice."), answer["text"])

    def model_with_eos(self, name, generation, config, tokenizer):
        model = self.copy_of(DEMO, name)
        self.edit(model, "config.json", {"eos_token_id": config})
        self.edit(model, "tokenizer_config.json", {"eos_token": tokenizer})
        if generation is None:
            (model / "generation_config.json").unlink()
        else:
            self.edit(model, "generation_config.json", {"eos_token_id": generation})
        return model


class RunSamplingTest(ProgramTest):
    WARM = (STORY, "--temperature", "1", "--top-k", "0", "--top-p", "1", "--max-tokens", "40", "--ignore-eos")

    def test_same_seed_same_text_on_any_thread_count(self):
        one = self.run_json(*self.WARM, "--seed", "42", "--threads", "1")
        two = self.run_json(*self.WARM, "--seed", "42", "--threads", "2")
        other = self.run_json(*self.WARM, "--seed", "7", "--threads", "1")
        self.assertEqual((one["threads"], two["threads"], one["seed"]), (1, 2, 42))
        self.assertEqual(one["output_ids"], two["output_ids"])
        self.assertNotEqual(one["output_ids"], other["output_ids"])

    def test_the_printed_seed_repeats_the_run(self):
        first = self.run_json(*self.WARM)
        second = self.run_json(*self.WARM, "--seed", str(first["seed"]))
        self.assertEqual(first["output_ids"], second["output_ids"])
        self.assertEqual(first["seed"], second["seed"])
        told = vitrine("run", *self.WARM).out.decode()
        seed = re.search(r"temperature 1, seed (\d+)", told)
        self.assertTrue(seed, told)
        third = vitrine("run", *self.WARM, "--seed", seed[1]).out.decode()
        self.assertEqual(told[: told.rindex("\nModel:")], third[: third.rindex("\nModel:")])
        self.assertNotEqual(int(seed[1]), first["seed"])

    def test_greedy_and_temperature_0(self):
        expected = self.json_line(france())["output_ids"]
        for options in (
            ["--greedy", "--seed", "3", "--temperature", "2"],
            ["--temperature", "0"],
            ["--temperature", "1e-8"],
            ["--top-k", "1", "--temperature", "2"],
        ):
            with self.subTest(options=options):
                answer = self.run_json(FRANCE, "--max-tokens", "8", *EXACT, *options)
                self.assertEqual(answer["output_ids"], expected)

    def test_generation_config_decides(self):
        self.assertIn("temperature 0.6, seed ", vitrine("run", FRANCE).out.decode())
        model = self.edit(self.copy_of(DEMO), "generation_config.json", {"do_sample": False})
        self.assertIn(", greedy;", vitrine("run", FRANCE, "--model", str(model)).out.decode())

    def test_penalties_and_bias(self):
        answer = self.run_json(
            FRANCE, "--greedy", "--max-tokens", "1", "--logit-bias", "951:-100", "--logit-bias", "273:-100"
        )
        self.assertEqual(answer["output_ids"], [384])
        answer = self.run_json(
            FRANCE,
            "--greedy",
            "--max-tokens",
            "30",
            "--ignore-eos",
            "--presence-penalty",
            "2",
            "--frequency-penalty",
            "2",
            "--repetition-penalty",
            "1.5",
        )
        self.assertGreater(len(set(answer["output_ids"])), 24)

    def test_thread_counts_agree(self):
        answers = [
            self.run_json(STORY, "--greedy", "--max-tokens", "20", "--top", "3", "--threads", n)
            for n in "123"
        ]
        self.assertEqual([answer["threads"] for answer in answers], [1, 2, 3])
        for answer in answers:
            self.assertEqual((answer["text"], answer["top"]), (answers[0]["text"], answers[0]["top"]))


class RunTextTest(ProgramTest):
    def test_text_then_table_then_closing_lines(self):
        result = vitrine("run", FRANCE, "--greedy", "--top", "5")
        self.assert_runs(result)
        self.assertEqual(result.err, "")
        text = result.out.decode()
        self.assertTrue(text.startswith(" Paris.\n"), text)
        self.assertRegex(text, r"\n +1 +951 +\" Paris\" +0\.93\d\d +14\.9\d+\n")
        names = re.findall(r"^(\w+): ", text, re.MULTILINE)
        self.assertEqual(names[-4:], ["Model", "Prompt", "Output", "Time"])
        self.assertRegex(text, r"Prompt: +5 tokens.* tokens/s")
        self.assertRegex(text, r"Output: +3 tokens.* tokens/s")
        self.assertIn("greedy", text)
        self.assertRegex(text, r"memory [\d.]+ [MG]B")
        self.assertNotIn("\x1b", text)

    def test_quiet_is_the_text_alone(self):
        result = vitrine("run", "Сталіца Беларусі —", "--greedy", "--quiet")
        self.assertEqual((result.out.decode(), result.err), (" Мінск.\n", ""))

    def test_streams_ids_without_a_tokenizer(self):
        result = vitrine(
            "run", "--model", str(TINY), "--ids", "1,2,3", "--max-tokens", "4", "--greedy", "--quiet"
        )
        self.assert_runs(result)
        self.assertRegex(result.out.decode(), r"^(\d+ ){3}\d+ ?\n$")


class PromptSourceTest(ProgramTest):
    def test_standard_input_and_file(self):
        path = self.temp / "prompt.txt"
        path.write_text(FRANCE + "\n", encoding="utf-8")
        one = ("--max-tokens", "1", "--greedy")
        self.assert_is_france(self.run_json("-", *one, stdin=FRANCE.encode()))
        self.assert_is_france(self.run_json(*one, stdin=FRANCE.encode() + b"\n"))
        self.assert_is_france(self.run_json("--file", str(path), *one))
        self.assert_is_france(self.run_json("--file", "prompt.txt", *one, cwd=self.temp))
        self.assert_refuses(vitrine("run", FRANCE, "--file", str(path)), 2, "--file")
        self.assert_refuses(vitrine("run", FRANCE, "--ids", "1"), 2, "--ids")

    def test_an_argument_does_not_wait_for_standard_input(self):
        for text, code in (
            (FRANCE, 0),
            ("", 2),
        ):  # an empty argument is an empty prompt, not a request to read
            with self.subTest(text=text):
                process = start(
                    "run", text, "--greedy", "--quiet", stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
                )
                try:
                    self.assertEqual(process.wait(60), code)
                finally:
                    process.kill()
                    process.communicate()

    def test_only_one_newline_is_dropped(self):
        with_newline = self.run_json("-", "--max-tokens", "1", stdin=FRANCE.encode() + b"\n\n")["prompt_ids"]
        self.assertEqual(with_newline[:5], FRANCE_IDS)
        self.assertEqual(len(with_newline), 6)

    def test_empty(self):
        empty = self.temp / "empty.txt"
        empty.write_bytes(b"")
        self.assert_refuses(vitrine("run", ""), 2, "empty")
        self.assert_refuses(vitrine("run", stdin=b""), 2, "empty")
        self.assert_refuses(vitrine("run", "--file", str(empty)), 2, "empty")
        self.assert_refuses(vitrine("run", "--ids", "[]"), 2, "empty")

    def test_leading_dash(self):
        answer = self.json_line(vitrine("run", "--max-tokens", "1", "--json", "--", "--greedy"))
        spelled = self.json_line(vitrine("tokenize", "--json", "--", "--greedy"))
        self.assertEqual(answer["prompt_ids"], spelled["ids"])
        spelled = self.json_line(vitrine("tokenize", "--json", "--", "-5"))
        self.assertEqual("".join(token["token"] for token in spelled["tokens"]), "-5")

    def test_longer_than_the_context(self):
        result = vitrine("run", "-", "--max-tokens", "1", stdin=b"hello " * 3000)
        self.assertIn(result.code, (1, 2))
        self.assert_refuses(result, result.code, "1024", "prompt")
        self.assert_refuses(vitrine("run", FRANCE, "--context", "5"), result.code, "5 tokens")
        self.assert_refuses(vitrine("run", FRANCE, "--context", "2000"), 2, "context", "1024")

    def test_bytes_that_are_not_utf8(self):
        for text in (b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b"\xc0\xaf"):
            with self.subTest(text=text):
                answer = self.run_json(text, "--max-tokens", "3", "--top", "3")
                self.assertTrue(answer["prompt_ids"])
                spelled = self.json_line(vitrine("tokenize", "--json", "-", stdin=text))
                self.assertEqual(spelled["ids"], answer["prompt_ids"])
        self.assertTrue(vitrine("tokenize", b"\xff\xfe\xc3").out.decode("utf-8"))

    def test_special_strings(self):
        text = "a<|im_end|>"
        parsed = self.run_json(text, "--max-tokens", "1")["prompt_ids"]
        self.assertEqual(self.run_json(text, "--max-tokens", "1", "--special", "parse")["prompt_ids"], parsed)
        self.assertEqual(parsed[-1], 3750)
        self.assertNotIn(3750, self.run_json(text, "--max-tokens", "1", "--special", "text")["prompt_ids"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
