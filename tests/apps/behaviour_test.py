# SPDX-License-Identifier: Apache-2.0
"""What every command has in common: usage, signals, outputs that fail, kernel tables."""

import os
import signal
import subprocess
import time
import unittest

from program import (SOURCE, BINARY, DEMO, FRANCE, STORY, EXACT, TIMEOUT_S, environment, vitrine, start,
                     france, wait_until_it_catches, ProgramTest, Result)


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
        for command in ([], ["run"], ["tokenize"], ["info"], ["explain"], ["bench"], ["bench", "engine"]):
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
        """The weights were packed at load: what becomes of the checkpoint afterwards is no matter."""
        model = self.edit(self.copy_of(DEMO), "config.json", {"max_position_embeddings": 200000})
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        arguments = ["--model", str(model), "--ignore-eos", "--greedy", "--max-tokens", "400"]
        process = start("run", FRANCE, *arguments, **options)
        try:
            self.assertTrue(process.stdout.read(1))
            os.truncate(model / "model.safetensors", 0)
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertIn(b"400 tokens", out)


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
