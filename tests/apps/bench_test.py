# SPDX-License-Identifier: Apache-2.0
"""The `bench` command: its keys, its text, what it skips and refuses, the engine beside it. No figure is judged."""

import functools
import json
import subprocess
import sys
import unittest

from program import BINARY, SOURCE, TINY, vitrine, environment, ProgramTest

SMALL = ("--prefill", "40", "--depth", "0,64,2048", "--batch", "3", "--tokens", "4", "--repeat", "2", "--threads", "2")
NO_DECODE = ("--prefill", "40", "--depth", "", "--batch", "", "--repeat", "1")
COMPARE = SOURCE / "bench/compare.py"

# A stand-in for the package: writes the rows of each pass to a file.
LLAMA_CPP = '''
import types
log = open({log!r}, "w", buffering=1)
def params(): return types.SimpleNamespace()
llama_model_default_params = llama_context_default_params = params
def llama_log_callback(f): return f
def llama_log_set(f, data): pass
def llama_backend_init(): print("a library that prints", flush=True)
def llama_model_load_from_file(path, p): return path.endswith(b".gguf")
def llama_model_get_vocab(model): return 1
def llama_vocab_n_tokens(vocab): return 100
def llama_print_system_info(): return b"abacus"
def llama_init_from_model(model, p): return p
def llama_get_memory(context): return context
def llama_memory_clear(memory, data): print("clear", memory.n_ctx, memory.n_seq_max, memory.n_threads, file=log)
def llama_batch_init(n, embd, seqs):
    return types.SimpleNamespace(n_tokens=0, token=[0] * n, pos=[0] * n, n_seq_id=[0] * n, logits=[0] * n,
                                 seq_id=[[0] for _ in range(n)])
def llama_decode(context, batch):
    rows = range(batch.n_tokens)
    assert all(0 <= batch.token[i] < 100 for i in rows)
    print([(batch.pos[i], batch.seq_id[i][0], bool(batch.logits[i])) for i in rows], file=log)
    return 0
def llama_synchronize(context): pass
def llama_get_logits_ith(context, row): return row
def llama_memory_seq_rm(memory, sequence, first, end): print("forget", sequence, first, end, file=log)
def llama_batch_free(batch): pass
def llama_free(context): pass
'''

# Another: a row's likeliest token is its own number.
NUMPY = """
import types
class ctypeslib:
    @staticmethod
    def as_array(row, shape):
        assert shape == (100,)
        return types.SimpleNamespace(argmax=lambda: row % 100)
"""


@functools.cache
def small():
    return vitrine("bench", *SMALL, "--json")


class BenchJsonTest(ProgramTest):
    def test_documented_keys(self):
        answer = self.json_line(small())
        self.assertEqual(small().err, "")
        first = ["model", "isa", "threads", "weights", "kv", "stream_gb_per_s", "bytes_per_token", "prefill",
                 "decode", "batch", "load_s", "peak_bytes"]
        self.assertEqual(list(answer)[: len(first)], first)
        self.assertEqual((answer["model"], answer["threads"]), ("demo", 2))
        self.assertEqual((answer["weights"], answer["kv"]), ("bf16", "bf16"))
        for key, sizes in (("prefill", ["40"]), ("decode", ["0", "64"]), ("batch", ["3"])):
            self.assertEqual(list(answer[key]), sizes)
            for size in sizes:
                self.assertGreater(answer[key][size], 0)
                spread = answer["spread"][key][size]
                self.assertEqual(spread["count"], 2)
                self.assertTrue(spread["min"] <= answer[key][size] <= spread["max"], spread)
        for key in ("stream_gb_per_s", "load_s", "peak_bytes"):
            self.assertGreater(answer[key], 0, key)
        self.assertGreater(answer["peaks"]["float_gflops"], 0)
        self.assertGreater(answer["peaks"]["int8_gops"], 0)

    def test_bytes_of_a_token(self):
        answer = self.json_line(small())
        info = self.json_line(vitrine("info", "--json"))
        weights = info["weight_bytes"]  # all of them: the demo's embedding is its head
        self.assertEqual(
            answer["bytes_per_token"], {"0": weights, "64": weights + 64 * info["kv_bytes_per_token"]}
        )

    def test_stream(self):
        stream = self.json_line(small())["stream"]
        self.assertIn(stream["source"], ("file", "anonymous"))
        self.assertGreaterEqual(stream["memory"]["spread"]["count"], 5)
        self.assertIn(stream["memory"]["prefetch_bytes"], (0, 4096, 8192))
        rates = [stream[key]["gb_per_s"] for key in ("memory", "weights_size") if stream[key]]
        self.assertEqual(self.json_line(small())["stream_gb_per_s"], max(rates))

    def test_skipped_with_a_reason(self):
        skipped = self.json_line(small())["skipped"]
        self.assertEqual(
            skipped, [{"what": "decode", "size": 2048, "reason": "needs 2,053 tokens, the context has 1,024"}]
        )
        short = ("--prefill", "40", "--depth", "64", "--batch", "3", "--context", "32")
        answer = self.json_line(vitrine("bench", *short, "--json"))
        self.assertEqual([s["what"] for s in answer["skipped"]], ["prefill", "decode", "batch"])
        self.assertEqual((answer["prefill"], answer["stream_gb_per_s"], answer["profiles"]), ({}, None, []))

    def test_nothing_decodes(self):
        answer = self.json_line(vitrine("bench", *NO_DECODE, "--json"))
        self.assertEqual((answer["stream_gb_per_s"], answer["bytes_per_token"], answer["decode"]), (None, {}, {}))
        self.assertGreater(answer["prefill"]["40"], 0)
        self.assertEqual([p["what"] for p in answer["profiles"]], ["prefill"])

    def test_parts(self):
        profiles = self.json_line(small())["profiles"]
        self.assertEqual([(p["what"], p["size"]) for p in profiles], [("decode", 64), ("prefill", 40)])
        for profile in profiles:
            parts = profile["parts"]
            self.assertEqual(
                list(parts),
                ["embedding", "norm", "qkv", "attention", "o_proj", "gate_up", "down_proj",
                 "head", "sampling"],
            )
            self.assertLessEqual(sum(part["seconds"] for part in parts.values()), profile["seconds"])
            for name in ("qkv", "attention", "o_proj", "gate_up", "down_proj", "head"):
                for key in ("bytes", "operations", "share_of_bound"):
                    self.assertGreater(parts[name][key], 0, (name, key))
            for name in ("embedding", "norm", "sampling"):
                self.assertEqual(list(parts[name]), ["seconds"])
        decode, prefill = (profile["parts"] for profile in profiles)
        self.assertEqual(prefill["head"]["operations"], decode["head"]["operations"])  # of one row
        self.assertEqual(prefill["gate_up"]["operations"], 40 * decode["gate_up"]["operations"])
        self.assertEqual(prefill["gate_up"]["bytes"], decode["gate_up"]["bytes"])  # one step of 256
        self.assertEqual(self.json_line(small())["step_tokens"], 256)


class BenchTextTest(ProgramTest):
    def test_tables(self):
        result = vitrine("bench", *SMALL)
        self.assert_runs(result)
        self.assertEqual(result.err, "")
        text = result.out.decode()
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"^demo: 4\.6 M parameters, 9\.\d MB of weights \(bf16\), KV cache bf16; ")
        self.assertRegex(text, r"\nLoad [\d.]+ s.*; peak memory [\d.]+ [MG]B\n")
        self.assertRegex(text, r"\nprefill 40 +[\d.]+ +± [\d.]+ % +[\d.]+ GOP/s +\d+ %\n")
        self.assertRegex(text, r"\ndecode at 0 +[\d.]+ +± [\d.]+ % +[\d.]+ GB/s +\d+ %\n")
        self.assertRegex(text, r"\ndecode at 2,048 +skipped: needs 2,053 tokens, the context has 1,024\n")
        self.assertRegex(text, r"\nstream +[\d.]+ GB/s  reading ")
        self.assertRegex(text, r"\ngate_up +[\d.]+ +[\d.]+ % +[\d.]+ GB/s +\d+ %  ")
        self.assertRegex(text, r"\nhead +[\d.]+ +[\d.]+ % +[\d.]+ GB/s")
        self.assertLessEqual(max(len(line) for line in text.splitlines()), 120)


class BenchUsageTest(ProgramTest):
    def test_bad_lists(self):
        for option, text, part in (
            ("--prefill", "0", '--prefill: expected numbers from 1 to 2147483648 with commas between, found "0"'),
            ("--prefill", "512,x", '"x"'),
            ("--depth", "-1", "--depth"),
            ("--depth", "1,", '""'),
            ("--depth", "7,7", "--depth: 7 is there twice"),
            ("--depth", "99999999999999999999", "--depth"),
            ("--batch", "0", "--batch"),
            ("--batch", "1025", "1024"),
            ("--tokens", "0", "--tokens"),
            ("--repeat", "0", "--repeat"),
            ("--weights", "int7", "--weights"),
            ("--kv", "int4", "--kv"),
            ("--against", "/nonexistent.gguf", "/nonexistent.gguf"),
        ):
            with self.subTest(option=option, text=text):
                self.assert_refuses(vitrine("bench", f"{option}={text}"), 2, part)

    def test_nothing_to_measure(self):
        result = vitrine("bench", "--prefill", "", "--depth", "", "--batch", "")
        self.assert_refuses(result, 2, "nothing to measure", "--depth")

    def test_missing_model(self):
        self.assert_refuses(vitrine("bench", "--model", "/nonexistent/model"), 1, "/nonexistent/model")


class BenchPeerTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.gguf = self.temp / "model.gguf"
        self.gguf.write_bytes(b"GGUF")

    def script(self, body):
        path = self.temp / "peer"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def bench(self, python, *options, **more):
        return vitrine("bench", "--against", str(self.gguf), "--peer-python", str(python), *options, **more)

    FINE = (
        "print(json.dumps({'name': 'abacus', 'load_s': 0.5}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    print(line.strip(), sys.argv[2:], file=open(sys.argv[0] + '.log', 'a'))\n"
        "    print(json.dumps({'tokens_per_s': 100.0}), flush=True)\n"
    )

    def test_rounds_and_ratios(self):
        options = ("--prefill", "40", "--depth", "", "--batch", "2", "--tokens", "4", "--repeat", "1",
                   "--threads", "2")
        answer = self.json_line(self.bench(self.script(self.FINE), *options, "--json"))
        peer = answer["peer"]
        self.assertEqual((peer["name"], peer["load_s"]), ("abacus", 0.5))
        self.assertEqual((peer["prefill"], peer["batch"]), ({"40": 100.0}, {"2": 100.0}))
        self.assertEqual(peer["ratio"]["prefill"]["40"], answer["prefill"]["40"] / 100)
        self.assertEqual(answer["spread"]["prefill"]["40"]["count"], 5)  # whatever --repeat says
        self.assertEqual(peer["spread"]["batch"]["2"]["count"], 5)
        asked = (self.temp / "peer.log").read_text(encoding="utf-8").splitlines()
        words = [str(self.gguf), "--threads", "2"]
        self.assertEqual(asked, [f"prefill 40 {words}", f"batch 2 4 {words}"] * 6)  # in turns; one round to warm up

    def test_text(self):
        result = self.bench(self.script(self.FINE), *NO_DECODE)
        self.assert_runs(result)
        self.assertRegex(result.out.decode(), r"abacus +ratio\nprefill 40 .* 100\.0 +± 0\.0 % +[\d.]+\n")

    def test_peers_that_fail(self):
        hello = "print(json.dumps({'name': 'abacus', 'load_s': 0.5}), flush=True)\n"
        dies = "sys.stdin.readline()\nprint('a bead\\nis lost', file=sys.stderr)\nsys.exit(3)\n"
        cases = {
            "dies at once": ("sys.exit('no beads')", "the peer gave no answer (exit code 1): no beads"),
            "dies in a round": (hello + dies, "abacus gave no answer (exit code 3): is lost"),
            "is killed": (hello + "os.kill(os.getpid(), 9)", "killed by signal 9"),
            "says what is wrong": ("print(json.dumps({'error': 'no package'}))", "the peer: no package"),
            "says nonsense": ("print('hello')", 'expected a line with a JSON object, found "hello"'),
            "has no figure": (hello + "sys.stdin.readline()\nprint('{}')", "expected a tokens_per_s above 0, found {}"),
            "has no speed": (hello + "sys.stdin.readline()\nprint('{\"tokens_per_s\": 0}')", "tokens_per_s"),
        }
        for name, (body, part) in cases.items():
            with self.subTest(name):
                result = self.bench(self.script(body), *NO_DECODE, "--json")
                self.assertEqual(result.code, 1, result)
                answer = json.loads(result.out)
                self.assertGreater(answer["prefill"]["40"], 0)  # our own figures all the same
                self.assertIn(part, answer["peer"]["error"])
                self.assertEqual(result.err, f"vitrine: --against: {answer['peer']['error']}\n")

    def test_no_such_python(self):
        result = self.bench("/nonexistent/python", *NO_DECODE)
        self.assertEqual(result.code, 1)
        self.assertIn("prefill 40", result.out.decode())
        self.assertEqual(result.err, "vitrine: --against: --peer-python: /nonexistent/python cannot be started: "
                                     "No such file or directory\n")


class CompareTest(ProgramTest):
    """bench/compare.py itself."""

    def setUp(self):
        super().setUp()
        self.log = self.temp / "log"
        self.env = {"PYTHONPATH": str(self.temp), "PYTHONDONTWRITEBYTECODE": "1"}

    def start(self, *options, model="model.gguf", commands=""):
        return subprocess.run([sys.executable, str(COMPARE), model, "--threads", "3", *options], input=commands,
                              text=True, capture_output=True, env=environment(self.env), timeout=60, check=False)

    def compare(self, commands, model="model.gguf"):
        done = self.start(model=model, commands=commands)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def with_package(self):
        text = LLAMA_CPP.replace("{log!r}", repr(str(self.log)))
        (self.temp / "llama_cpp.py").write_text(text, encoding="utf-8")
        (self.temp / "numpy.py").write_text(NUMPY, encoding="utf-8")

    def test_many_requests_at_once(self):
        self.with_package()
        code, answers = self.compare("engine 3 2 2 2\n")
        self.assertEqual(code, 0, answers)
        for key in ("tokens_per_s", "total_tokens_per_s"):
            self.assertGreater(answers[1][key], 0)
        for key in ("ttft_ms", "itl_ms"):
            self.assertEqual(list(answers[1][key]), ["p50", "p90", "p99"])
        both = [(1, 0, True), (1, 1, True)]
        self.assertEqual(
            self.log.read_text(encoding="utf-8").splitlines(),
            [
                "clear 8 2 3",
                str([(0, 0, False), both[0], (0, 1, False), both[1]]), str([(2, 0, True), (2, 1, True)]),
                "forget 0 -1 -1", "forget 1 -1 -1",  # and the third has one of their places
                str([(0, 1, False), both[1]]), str([(2, 1, True)]), "forget 1 -1 -1",
            ],
        )

    def test_prompts_are_read_beside_those_that_decode(self):
        self.with_package()
        self.assertEqual(self.compare("engine 2 2 400 3\n")[0], 0)
        passes = self.log.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line.replace("(", "[").replace(")", "]").lower()) for line in passes if line[0] == "["]
        self.assertEqual([len(part) for part in rows], [512, 289, 2, 1])
        self.assertEqual(rows[1][0], [400, 0, True])  # the decoding one first
        self.assertEqual([row for row in rows[1] if row[2]], [[400, 0, True], [399, 1, True]])

    def test_too_many_at_once(self):
        self.with_package()
        code, answers = self.compare("engine 1 513 1 1\n")
        self.assertEqual(code, 1)
        self.assertIn("1 to 512", answers[1]["error"])

    def test_in_turns_with_the_program(self):
        self.with_package()
        size = ("--requests", "2", "--concurrency", "2", "--prompt-tokens", "8", "--output-tokens", "3")
        done = self.start("--vitrine", BINARY, "--rounds", "1", *size, "--", "--model", str(TINY))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("2 requests of 8 + 3 tokens, 2 at once, 3 threads; medians of 1\n"))
        self.assertRegex(done.stdout, r"\n +vitrine +llama.cpp +ratio\noutput tokens/s +[\d.]+ +[\d.]+ +[\d.]+\n")
        self.assertEqual(done.stdout.count("\n"), 10)
        self.assertEqual(self.log.read_text(encoding="utf-8").count("clear"), 2)  # a round to warm up

    def test_in_turns_with_what_fails(self):
        self.with_package()
        for program, part in (("/nonexistent/vitrine", "cannot be started"), ("false", "exit code 1")):
            done = self.start("--vitrine", program)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"compare.py: {program} ", done.stderr)
            self.assertIn(part, done.stderr)

    def test_the_same_work(self):
        self.with_package()
        code, answers = self.compare("prefill 3\ndecode 2 2\n\ndecode 0 1\nbatch 2 1\nprefill 513\n")
        self.assertEqual(code, 0)
        self.assertEqual((answers[0]["name"], answers[0]["system"]), ("llama.cpp", "abacus"))
        self.assertEqual(len(answers), 6)
        self.assertTrue(all(answer["tokens_per_s"] > 0 for answer in answers[1:]), answers)

        def prompt(first, end, sequence=0, last=True):
            return [(p, sequence, last and p == end - 1) for p in range(first, end)]

        self.assertEqual(
            self.log.read_text(encoding="utf-8").splitlines(),
            [
                "clear 4 1 3", str(prompt(0, 3)),
                "clear 5 1 3", str(prompt(0, 2)), str([(2, 0, True)]), str([(3, 0, True)]),
                "clear 5 1 3", str(prompt(0, 1)), str([(1, 0, True)]),
                "clear 260 2 3", str(prompt(0, 128)), str(prompt(0, 128, 1)), str([(128, 0, True), (128, 1, True)]),
                "clear 514 1 3", str(prompt(0, 512, last=False)), str([(512, 0, True)]),
            ],
        )

    def test_errors_are_answers(self):
        self.with_package()
        for command in ("jump 3", "prefill", "prefill x", "decode 3", "batch 1 2 3", "engine 1 2 3"):
            with self.subTest(command=command):
                code, answers = self.compare(command + "\n")
                self.assertEqual(code, 1)
                self.assertIn(repr(command), answers[1]["error"])
        code, answers = self.compare("", model="model.txt")
        self.assertEqual((code, answers), (1, [{"error": "model.txt: llama.cpp cannot load it"}]))

    def test_a_package_that_cannot_be_loaded(self):
        (self.temp / "llama_cpp.py").write_text("raise ImportError('no beads')", encoding="utf-8")
        code, answers = self.compare("")
        self.assertEqual(code, 1)
        self.assertRegex(answers[0]["error"], "the package llama_cpp cannot be loaded by .*: no beads")


if __name__ == "__main__":
    unittest.main(verbosity=2)
