# SPDX-License-Identifier: Apache-2.0
"""What scripts and people rely on in the program, from outside: exit codes, streams, JSON, signals, files.

VITRINE_BINARY names the program, VITRINE_SOURCE_DIR the source tree; VITRINE_QWEN3_DIR may name the folder of
the real Qwen3-0.6B.
Classes that run everywhere are named ...Test (see CMakeLists.txt).
"""

import collections
import functools
import json
import os
import re
import shutil
import signal
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


class UsageTest(ProgramTest):
    def test_wrong_options(self):
        cases = [
            (["--max-tokens", "0"], "--max-tokens"),
            (["--max-tokens", "-1"], "--max-tokens"),
            (["--max-tokens", "abc"], "--max-tokens"),
            (["--max-tokens", "2.5"], "--max-tokens"),
            (["--bogus"], "--bogus"),
            (["extra"], "extra"),
            (["--top", "-1"], "--top"),
            (["--temperature", "-1"], "temperature: expected a number >= 0, found -1"),
            (["--temperature", "nan"], "temperature"),
            (["--top-p", "2"], "top_p"),
            (["--min-p", "-1"], "min_p"),
            (["--presence-penalty", "3"], "presence_penalty"),
            (["--repetition-penalty", "0"], "repetition_penalty"),
            (["--threads", "0"], "--threads"),
            (["--threads", "5000"], "--threads"),
            (["--stop", ""], "stop"),
            (["--logit-bias", "x"], "--logit-bias"),
            (["--logit-bias", "99999:1"], "99999"),
            (["--precision", "fp64"], "--precision"),
            (["--special", "no"], "--special"),
            (["--seed", "1.5"], "--seed"),
            (["--seed", "-1"], "--seed"),
            (["--seed", "18446744073709551616"], "--seed"),
            (["--file", "/nonexistent/file"], "/nonexistent/file"),
        ]
        for options, part in cases:
            with self.subTest(options=options):
                self.assert_refuses(vitrine("run", "hi", *options), 2, part)

    def test_wrong_ids(self):
        for ids, part in (
            ("abc", "abc"),
            ("-5", "-5"),
            ("3840", "3840"),
            ("99999999999999", "99999999999999"),
            ("1.5", ".5"),
            ("1,x", "x"),
        ):
            with self.subTest(ids=ids):
                self.assert_refuses(vitrine("run", "--ids=" + ids), 2, part)

    def test_a_command_is_needed(self):
        self.assert_refuses(vitrine(), 2, "--help")
        self.assert_refuses(vitrine("bogus"), 2, "--help")

    def test_missing_model(self):
        for name in ("/nonexistent/model", "nosuchmodel", str(SOURCE / "LICENSE")):
            with self.subTest(model=name):
                result = vitrine("run", "hi", "--model", name)
                self.assertIn(result.code, (1, 2) if name.endswith("LICENSE") else (1,))
                self.assert_refuses(result, result.code, name)
        (self.temp / "hollow").mkdir()
        self.assert_refuses(
            vitrine("run", "hi", "--model", str(self.temp / "hollow")), 1, str(self.temp / "hollow")
        )

    def test_help_everywhere(self):
        for command in ([], ["run"], ["tokenize"], ["info"], ["explain"]):
            with self.subTest(command=command):
                result = vitrine(*command, "--help")
                self.assert_runs(result)
                self.assertEqual(result.err, "")
                self.assertIn("Example: vitrine ", result.out.decode())

    def test_version(self):
        self.assertRegex(vitrine("--version").out.decode(), r"^vitrine \d+\.\d+\.\d+\n$")


# ---- Signals and pipes -------------------------------------------------------------------------------------


class SignalTest(ProgramTest):
    LONG = ("--ignore-eos", "--max-tokens", "1000000", "--greedy")

    def setUp(self):
        super().setUp()
        model = self.edit(self.copy_of(DEMO), "config.json", {"max_position_embeddings": 200000})
        self.endless = ("--model", str(model), *self.LONG)

    def start(self, *args, **options):
        process = start(
            *args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=TIMEOUT_S)
        return Result(process.returncode, out, err.decode())

    def test_interrupted_json(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                process = self.start("run", FRANCE, *self.endless, "--json")
                wait_until_it_catches(process, number)
                time.sleep(0.3)
                process.send_signal(number)
                result = self.finish(process)
                answer = self.json_line(result)
                self.assertEqual((answer["finish_reason"], result.err), ("cancelled", ""))
                self.assertTrue(answer["text"].startswith(" Paris"), answer["text"][:100])

    def test_interrupted_text(self):
        process = self.start("run", FRANCE, *self.endless)
        self.assertTrue(os.read(process.stdout.fileno(), 1))
        process.send_signal(signal.SIGINT)
        result = self.finish(process)
        self.assert_runs(result)
        text = result.out.decode()
        self.assertIn("cancelled", text)
        self.assertRegex(text, r"\nModel: .*\nPrompt: .*\nOutput: .*\nTime: .*\n$")

    def test_interrupted_in_a_long_prompt(self):
        path = self.temp / "long.txt"
        path.write_text("hello " * 60000, encoding="utf-8")
        process = self.start("run", "--file", str(path), *self.endless, "--json")
        wait_until_it_catches(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        answer = self.json_line(self.finish(process))
        self.assertEqual(
            (answer["finish_reason"], answer["output_ids"], answer["text"]), ("cancelled", [], "")
        )


class ShrinkingFileTest(ProgramTest):
    def test_a_model_file_cut_short_in_use(self):
        model = self.edit(self.copy_of(DEMO), "config.json", {"max_position_embeddings": 200000})
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = start("run", FRANCE, "--model", str(model), "--ignore-eos", **options)
        try:
            self.assertTrue(process.stdout.read(1))
            os.truncate(model / "model.safetensors", 0)
            _, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(b"truncated", err)


class OutputTest(ProgramTest):
    def test_closed_pipe(self):
        """`vitrine run ... | head -c 1`: ends soon, by SIGPIPE or with exit code 1, and quietly."""
        for kept in (True, False):  # SIGPIPE's usual effect, and ignored as under many supervisors
            with self.subTest(default_sigpipe=kept):
                process = start(
                    "run",
                    STORY,
                    "--ignore-eos",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    restore_signals=kept,
                )
                process.stdout.read(1)
                process.stdout.close()
                err = process.stderr.read().decode()
                process.stderr.close()
                self.assertIn(process.wait(TIMEOUT_S), (-signal.SIGPIPE, 1))
                self.assertNotIn("terminate", err)
                self.assertLessEqual(err.count("\n"), 1, err)

    def test_full_disk(self):
        commands = (
            ["run", FRANCE],
            ["run", FRANCE, "--json"],
            ["tokenize", "hi"],
            ["info"],
            ["explain", FRANCE],
            ["--help"],
        )
        for command in commands:
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                done = subprocess.run(
                    [BINARY, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=full,
                    stderr=subprocess.PIPE,
                    env=environment(),
                    timeout=TIMEOUT_S,
                    check=False,
                )
                self.assertEqual(done.returncode, 1)
                self.assertIn(b"No space left", done.stderr)

    def test_no_escape_codes_off_a_terminal(self):
        for command in (
            ["run", FRANCE, "--top", "5"],
            ["explain", FRANCE],
            ["info"],
            ["tokenize", "a\x1b[31mb"],
        ):
            with self.subTest(command=command[0]):
                result = vitrine(*command)
                self.assertNotIn(b"\x1b", result.out)
                self.assertNotIn("\x1b", result.err)
        self.assertNotIn("\x1b", vitrine("run", "x", "--model", "/a\x1b[31mb").err)


class KernelTest(ProgramTest):
    def test_forced_tables(self):
        tables = self.json_line(vitrine("info", "--json"))["isas"]
        self.assertIn("generic", [table["name"] for table in tables])
        expected = self.json_line(france())["output_ids"]
        for table in tables:
            with self.subTest(table=table["name"]):
                env = {"VITRINE_ISA": table["name"]}
                result = vitrine("run", FRANCE, "--max-tokens", "8", "--greedy", *EXACT, "--json", env=env)
                if not table["available"]:
                    self.assert_refuses(result, result.code, table["name"], table["reason"])
                    continue
                answer = self.json_line(result)
                self.assertEqual((answer["isa"], answer["output_ids"]), (table["name"], expected))
        result = vitrine("run", "hi", env={"VITRINE_ISA": "nonsense"})
        self.assertIn(result.code, (1, 2))
        self.assert_refuses(result, result.code, "nonsense", "generic", "avx2")


# ---- The other commands ------------------------------------------------------------------------------------


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
            "weight_bytes": 9150848,
            "layers": 8,
            "hidden_size": 192,
            "intermediate_size": 576,
            "query_heads": 4,
            "kv_heads": 2,
            "head_dim": 64,
            "vocab_size": 3840,
            "max_position_embeddings": 1024,
            "context": 1024,
            "fits": True,
            "precision": "default",
            "threads": 2,
        }
        self.assertEqual({key: answer[key] for key in expected}, expected)
        self.assertEqual(sorted(answer["eos_ids"]), [3748, 3750])
        self.assertEqual(sum(part["parameters"] for part in answer["parts"].values()), 4575424)
        self.assertEqual(sum(part["bytes"] for part in answer["parts"].values()), 9150848)
        self.assertEqual(answer["kv_bytes"], 1024 * answer["kv_bytes_per_token"])
        self.assertEqual(
            answer["needed_bytes"], answer["weight_bytes"] + answer["kv_bytes"] + answer["workspace_bytes"]
        )

    def test_context_changes_the_need(self):
        answer = self.json_line(vitrine("info", "--json", "--context", "256"))
        self.assertEqual((answer["context"], answer["kv_bytes"]), (256, 256 * answer["kv_bytes_per_token"]))


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


class ConfigTest(ProgramTest):
    """cases.md (b) through edits of config.json: the same ids, or a refusal that names file and key."""

    def greedy(self, model, case, count=12):
        ids = ",".join(map(str, stored_ints(model if isinstance(model, str) else model.name, f"ids.{case}")))
        folder = DATA / "models" / model if isinstance(model, str) else model
        return self.run_json(
            "--model",
            str(folder),
            "--ids",
            ids,
            "--max-tokens",
            str(count),
            "--greedy",
            "--ignore-eos",
            *EXACT,
        )["output_ids"]

    def edited(self, model, changes):
        """A copy in a folder of the same name, so that greedy() finds its prompt."""
        parent = tempfile.mkdtemp(dir=self.temp)
        return self.edit(self.copy_of(DATA / "models" / model, f"{parent}/{model}"), "config.json", changes)

    def sure(self, model, case, count=12):
        """The expected ids up to the first close decision."""
        margins = stored(model, f"margin.{case}", "f")[:count]
        sure = next((i for i, margin in enumerate(margins) if margin < 2e-3), count)
        self.assertGreater(sure, 3, "the fixture does not say enough")
        return stored_ints(model, f"greedy.{case}")[:sure]

    def assert_expected(self, folder, case):
        expected = self.sure(folder.name, case)
        self.assertEqual(self.greedy(folder, case)[: len(expected)], expected)

    def test_sliding_window_unused(self):  # B07
        for changes in (
            {},
            {"sliding_window": 8, "use_sliding_window": False},
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
        ):
            with self.subTest(changes=changes):
                self.assert_expected(self.edited("qwen3-tiny", changes), 2)

    def test_sliding_window_layers(self):  # B07
        full, sliding = "full_attention", "sliding_attention"
        self.assert_expected(self.edited("qwen3-sliding", {}), 1)
        explicit = {"max_window_layers": 0, "layer_types": [full, full, sliding, sliding]}
        self.assert_expected(self.edited("qwen3-sliding", explicit), 1)
        all_full = self.greedy(self.edited("qwen3-sliding", {"layer_types": [full] * 4}), 1)
        none = {"sliding_window": None, "use_sliding_window": False}
        self.assertEqual(all_full, self.greedy(self.edited("qwen3-sliding", none), 1))
        inverted = self.greedy(
            self.edited("qwen3-sliding", {"layer_types": [sliding, sliding, full, full]}), 1
        )
        self.assertNotEqual(inverted, self.greedy("qwen3-sliding", 1))

    def test_rope_spellings(self):  # B05
        yarn = {"factor": 4.0, "original_max_position_embeddings": 32}
        spellings = (
            {"rope_scaling": {"type": "yarn", **yarn}},
            {"rope_scaling": {"rope_type": "yarn", **yarn}},
            {
                "rope_scaling": ...,
                "rope_theta": ...,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, **yarn},
            },
        )
        for changes in spellings:
            with self.subTest(changes=changes):
                self.assert_expected(self.edited("qwen3-yarn", changes), 1)

    def test_refused_values(self):
        cases = [
            ({"rope_scaling": {"rope_type": "spiral", "factor": 2}}, ("rope_scaling", "spiral")),
            ({"rope_scaling": {"type": "yarn"}}, ("rope_scaling", "factor")),
            ({"hidden_act": "gelu"}, ("hidden_act", "gelu")),
            ({"model_type": "llama"}, ("model_type", "llama")),
            ({"head_dim": 16}, ("head_dim",)),
            ({"num_attention_heads": 3}, ("num_attention_heads",)),
            ({"vocab_size": 300}, ("vocab_size",)),
            ({"intermediate_size": 80}, ("intermediate_size",)),
            ({"num_key_value_heads": 4}, ("num_key_value_heads",)),
            ({"rms_norm_eps": -1}, ("rms_norm_eps",)),
            ({"layer_types": ["full_attention"]}, ("layer_types",)),
            ({"hidden_size": ...}, ("hidden_size",)),
        ]
        for changes, parts in cases:
            with self.subTest(changes=changes):
                model = self.edited("qwen3-tiny", changes)
                result = vitrine("run", "--model", str(model), "--ids", "1,2", "--max-tokens", "1")
                self.assert_refuses(result, 1, str(model / "config.json"), *parts)

    def test_missing_weights(self):
        model = self.edited("qwen3-tiny", {"tie_word_embeddings": False})  # B01
        self.assert_refuses(
            vitrine("run", "--model", str(model), "--ids", "1"), 1, "lm_head.weight", str(model)
        )
        model = self.edited("qwen3-tiny", {"num_hidden_layers": 4})
        self.assert_refuses(vitrine("run", "--model", str(model), "--ids", "1"), 1, "model.layers.3.")
        model = self.edited("qwen3-untied-sharded", {})  # B10
        (model / "model-00002-of-00003.safetensors").unlink()
        self.assert_refuses(
            vitrine("run", "--model", str(model), "--ids", "1"),
            1,
            "model-00002-of-00003.safetensors",
            "incomplete",
        )


class HubCacheTest(ProgramTest):
    COMMIT = "0123456789abcdef0123456789abcdef01234567"

    def make_cache(self, root, ref=True):
        """models--Some--Demo as huggingface_hub lays it out: blobs, and snapshots of links to them."""
        repository = root / "models--Some--Demo"
        snapshot = repository / "snapshots" / self.COMMIT
        snapshot.mkdir(parents=True)
        (repository / "blobs").mkdir()
        for number, file in enumerate(sorted(DEMO.iterdir())):
            shutil.copy(file, repository / "blobs" / f"{number:040x}")
            (snapshot / file.name).symlink_to(f"../../blobs/{number:040x}")
        if ref:
            (repository / "refs").mkdir()
            (repository / "refs" / "main").write_text(self.COMMIT, encoding="utf-8")
        return snapshot

    def run_named(self, env):
        nowhere = {"HOME": str(self.temp / "nobody")}
        return vitrine(
            "run", FRANCE, "--greedy", "--model", "Some/Demo", "--json", env={**nowhere, **env}, cwd="/"
        )

    def test_where_it_looks(self):
        places = {
            "HF_HUB_CACHE": "",
            "HF_HOME": "hub",
            "XDG_CACHE_HOME": "huggingface/hub",
            "HOME": ".cache/huggingface/hub",
        }
        for variable, inside in places.items():
            with self.subTest(variable=variable):
                root = self.temp / variable
                self.make_cache(root / inside)
                answer = self.json_line(self.run_named({variable: str(root)}))
                self.assertEqual((answer["model"], answer["text"]), ("Some/Demo", " Paris."))

    def test_without_refs_and_with_an_older_snapshot(self):
        self.make_cache(self.temp, ref=False)
        self.assertEqual(self.json_line(self.run_named({"HF_HUB_CACHE": str(self.temp)}))["text"], " Paris.")
        empty = self.temp / "models--Some--Demo/snapshots/ffff"
        empty.mkdir()
        os.utime(empty, (1, 1))
        self.assertEqual(self.json_line(self.run_named({"HF_HUB_CACHE": str(self.temp)}))["text"], " Paris.")

    def test_refusals_name_the_model_and_what_to_do(self):
        cache = {"HF_HUB_CACHE": str(self.temp)}
        self.assert_refuses(self.run_named(cache), 1, "Some/Demo", str(self.temp), "hf download Some/Demo")
        snapshot = self.make_cache(self.temp)
        (snapshot / "model.safetensors").resolve().unlink()
        self.assert_refuses(self.run_named(cache), 1, "model.safetensors")
        (snapshot / "config.json").resolve().unlink()
        self.assert_refuses(self.run_named(cache), 1, "config.json", "incomplete")
        for name in ("../Demo", "Some/..", "Some/De--mo"):
            result = vitrine("run", "hi", "--model", name, env=cache)
            self.assert_refuses(result, result.code, name)
            self.assertIn(result.code, (1, 2))


# ---- With the real files -----------------------------------------------------------------------------------


def real_tokenizer():
    """The folder with Qwen3's tokenizer.json, or None."""
    folders = [os.environ.get("VITRINE_QWEN3_DIR"), SOURCE.parent / "shared/data/qwen3-tokenizer"]
    return next(
        (Path(folder) for folder in folders if folder and (Path(folder) / "tokenizer.json").exists()), None
    )


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


class RealModel(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = Path(os.environ.get("VITRINE_QWEN3_DIR", "/nonexistent"))
        if not list(self.model.glob("*.safetensors")):
            self.skipTest("needs the real Qwen3-0.6B: set VITRINE_QWEN3_DIR")

    def test_the_articles_figures(self):
        answer = self.run_json(
            "--model", str(self.model), FRANCE, "--greedy", "--max-tokens", "1", "--top", "5"
        )
        self.assertEqual(answer["prompt_ids"], [785, 6722, 315, 9625, 374])
        top = answer["top"]
        expected = [0.6582, 0.0274, 0.0233, 0.0157, 0.0136]
        for place, (entry, probability) in enumerate(zip(top, expected, strict=True)):
            self.assertAlmostEqual(entry["probability"], probability, delta=0.003 if place else 0.01, msg=top)
        tokens = [entry["token"] for entry in top]
        self.assertEqual(tokens[:3], [" Paris", " located", " the"], top)
        self.assertIn(" ____", tokens[3:])  # the two are as near to each other as the tolerance


if __name__ == "__main__":
    unittest.main(verbosity=2)
