# SPDX-License-Identifier: Apache-2.0
"""`run --batch`: many requests, a line in and a line out for each, in the same order."""

import json
import math
import signal
import subprocess
import unittest

from program import (EXACT, FRANCE, FRANCE_IDS, STORY, STORY_START, TIMEOUT_S, TINY, ProgramTest, spelled_twice,
                     start, vitrine, wait_until_it_catches)

GREEDY = ("--greedy", "--max-tokens", "8")


def lines_of(*requests):
    """Texts as they are, all else as JSON."""
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in requests).encode()


class BatchTest(ProgramTest):
    def results_of(self, result, code=0):
        self.assertEqual(result.code, code, result)
        text = result.out.decode("utf-8")
        self.assertTrue(text == "" or text.endswith("\n"), text[-100:])
        results = [json.loads(line, object_pairs_hook=spelled_twice) for line in text.splitlines()]
        self.assertEqual([r["index"] for r in results], list(range(len(results))))
        return results

    def batch(self, *requests, options=GREEDY, code=0):
        return self.results_of(vitrine("run", "--batch", "-", *options, stdin=lines_of(*requests)), code)

    def message(self, request, options=GREEDY):
        """Of a line that is wrong, between two that are right."""
        results = self.batch(FRANCE, request, FRANCE, options=options, code=1)
        self.assertEqual([r["text"] for r in (results[0], results[2])], [" Paris."] * 2)
        self.assertLessEqual(set(results[1]), {"index", "id", "error"})
        self.assertEqual(list(results[1]["error"]), ["message"])
        self.assertNotRegex(results[1]["error"]["message"], r"exception\.|basic_string|stoi")
        return results[1]["error"]["message"]


class BatchResultTest(BatchTest):
    def test_texts_and_objects_in_order(self):
        path = self.temp / "requests.jsonl"
        path.write_bytes(lines_of(
            STORY,  # takes longer than the others
            FRANCE,
            {"prompt": FRANCE, "id": "a"},
            {"prompt_ids": FRANCE_IDS, "max_tokens": 1, "id": {"b": [1, None]}},
            {"prompt": FRANCE, "stop": ["Pa"], "id": None},
            {"prompt": FRANCE, "stop": "is."},
        ))
        result = vitrine("run", "--batch", str(path), *GREEDY, "--max-tokens", "40")
        self.assertEqual(result.code, 2, "an option twice")
        result = vitrine("run", "--batch", str(path), "--greedy", "--max-tokens", "40")
        results = self.results_of(result)
        self.assertEqual(result.err, "")
        self.assertEqual(len(results), 6)
        self.assertTrue(results[0]["text"].startswith(STORY_START))
        self.assertEqual([r["text"] for r in results[1:]], [" Paris.", " Paris.", " Paris", " ", " Par"])
        self.assertEqual([r["finish_reason"] for r in results[1:]], ["stop", "stop", "length", "stop", "stop"])
        self.assertEqual([r.get("id", "none") for r in results],
                         ["none", "none", "a", {"b": [1, None]}, None, "none"])

    def test_documented_keys(self):
        (answer,) = self.batch(FRANCE)
        types = {
            "index": int,
            "prompt_tokens": int,
            "output_ids": list,
            "text": str,
            "finish_reason": str,
            "seed": int,
            "cached_tokens": int,
            "timings": dict,
        }
        self.assertEqual({key: type(value) for key, value in answer.items()}, types)
        self.assertEqual(list(answer["timings"]), ["started_s", "prefill_s", "decode_s", "finished_s"])
        self.assertTrue(all(value >= 0 for value in answer["timings"].values()))

    def test_the_same_as_one_by_one(self):
        prompts = [FRANCE, STORY, "The capital of Italy is", "hello", "2 + 2 ="]
        warm = ("--temperature", "0.9", "--seed", "5", "--max-tokens", "20", "--ignore-eos", *EXACT)
        alone = [self.run_json(prompt, *warm) for prompt in prompts]
        for answer, expected in zip(self.batch(*prompts, options=warm), alone, strict=True):
            for key in ("output_ids", "text", "finish_reason", "seed"):
                self.assertEqual(answer[key], expected[key])
            self.assertEqual(answer["prompt_tokens"], len(expected["prompt_ids"]))

    def test_samples(self):
        warm = {"prompt": STORY, "temperature": 1, "max_tokens": 12, "seed": 7}
        several, one = self.batch({**warm, "n": 2, "id": 3, "logprobs": 0}, {**warm, "seed": 8}, options=())
        self.assertEqual(list(several), ["index", "id", "prompt_tokens", "samples"])
        self.assertEqual([s["seed"] for s in several["samples"]], [7, 8])
        self.assertEqual(several["samples"][1]["output_ids"], one["output_ids"])
        self.assertNotEqual(*(s["output_ids"] for s in several["samples"]))
        for sample in several["samples"]:
            self.assertEqual(len(sample["logprobs"]), len(sample["output_ids"]))
            self.assertNotIn("index", sample)

    def test_logprobs(self):
        (answer,) = self.batch({"prompt": FRANCE, "logprobs": 2, "prompt_logprobs": 1}, options=(*GREEDY, *EXACT))
        self.assertEqual(len(answer["prompt_logprobs"]), len(FRANCE_IDS) - 1)
        self.assertEqual([p["id"] for p in answer["prompt_logprobs"]], FRANCE_IDS[1:])
        self.assertEqual(len(answer["logprobs"]), len(answer["output_ids"]))
        first = answer["logprobs"][0]
        self.assertEqual((first["id"], first["token"]), (951, " Paris"))
        self.assertEqual([t["id"] for t in first["top"]][0], 951)
        self.assertEqual(len(first["top"]), 2)
        self.assertAlmostEqual(math.exp(first["logprob"]), 0.93, delta=0.01)
        self.assertEqual(first["top"][0], {key: first[key] for key in ("id", "token", "logprob")})

    def test_a_line_goes_before_the_command_line(self):
        long = {"prompt": STORY, "ignore_eos": True}
        changed = self.batch(
            {**long, "max_tokens": 3}, {**long, "max_tokens": None}, {**long, "stop": []},
            options=("--greedy", "--max-tokens", "5", "--stop", " was"))
        self.assertEqual([len(r["output_ids"]) for r in changed], [2, 2, 5])
        self.assertEqual([r["finish_reason"] for r in changed], ["stop", "stop", "length"])
        seeds = [{**long, "temperature": 2, "seed": seed, "max_tokens": 20} for seed in (1, 1, 2)]
        once, again, other, greedy, still = self.batch(*seeds, {**seeds[0], "greedy": True}, long)
        self.assertEqual(once["output_ids"], again["output_ids"])
        self.assertNotEqual(once["output_ids"], other["output_ids"])
        self.assertTrue(greedy["text"].startswith(STORY_START), "greedy whatever else is said")
        self.assertEqual(still["output_ids"], greedy["output_ids"][:8])

    def test_stop_ids_and_deadline(self):
        stopped, late = self.batch({"prompt": FRANCE, "stop_ids": [13]}, {"prompt": STORY, "deadline_s": 0})
        self.assertEqual((stopped["output_ids"], stopped["text"]), ([951, 13], " Paris"))
        self.assertEqual((late["finish_reason"], late["output_ids"]), ("deadline", []))

    def test_more_lines_than_run_at_once(self):
        requests = [{"prompt": FRANCE, "max_tokens": 1 + i % 3, "id": i} for i in range(300)]
        results = self.batch(*requests, options=("--greedy", "--ignore-eos", "--kv-memory", "512"))
        self.assertEqual([r["id"] for r in results], list(range(300)))
        self.assertEqual([len(r["output_ids"]) for r in results], [1 + i % 3 for i in range(300)])
        self.assertTrue(any(r["cached_tokens"] > 0 for r in results))
        salted = self.batch(*({**r, "cache_salt": str(r["id"])} for r in requests[:150]), options=("--greedy",))
        self.assertEqual({r["cached_tokens"] for r in salted}, {0})

    def test_a_folder_without_a_tokenizer(self):
        ids, text = self.batch({"prompt_ids": [1, 2, 3], "logprobs": 0}, "hello", code=1,
                               options=("--model", str(TINY), "--greedy", "--max-tokens", "4"))
        self.assertEqual((ids["text"], len(ids["output_ids"])), (None, 4))
        self.assertIsNone(ids["logprobs"][0]["token"])
        self.assertIn("tokenizer.json", text["error"]["message"])


class BatchErrorTest(BatchTest):
    def test_lines_that_are_wrong(self):
        cases = {
            "": "the prompt is empty",
            '{"prompt": ""}': "the prompt is empty",
            '{"prompt_ids": []}': "the prompt is empty",
            '{"prompt": "x"': "expected a JSON object, found something else at byte 15",
            '{"prompt": "x"} {}': "expected a JSON object, found something else at byte 17",
            "{}": "expected one of prompt and prompt_ids, found neither",
            '{"prompt": null}': "found neither",
            '{"prompt": "x", "prompt_ids": [1]}': "found both",
            '{"prompt": 1}': "prompt: expected a string, found 1",
            '{"prompt_ids": [1, "2"]}': 'prompt_ids: expected a whole number from',
            '{"prompt_ids": [3840]}': "3840",
            '{"prompt_ids": [-1]}': "-1",
            '{"prompt_ids": [99999999999]}': "prompt_ids: expected a whole number",
            '{"prompt": "x", "max_tokens": 0}': "max_tokens: expected at least 1",
            '{"prompt": "x", "max_tokens": 1.5}': "max_tokens: expected a whole number",
            '{"prompt": "x", "max_tokens": 18446744073709551615}': "max_tokens",
            '{"prompt": "x", "max_tokens": 1e999}': "a number that is too large",
            '{"prompt": "x", "temperature": "hot"}': 'temperature: expected a number, found "hot"',
            '{"prompt": "x", "temperature": -1}': "temperature: expected a number >= 0, found -1",
            '{"prompt": "x", "temperature": 1e300}': "temperature",
            '{"prompt": "x", "top_p": 2}': "top_p",
            '{"prompt": "x", "n": 0}': "n: expected 1 to",
            '{"prompt": "x", "n": 2147483647}': "n: expected 1 to",
            '{"prompt": "x", "seed": -1}': "seed: expected a whole number from 0 to 18446744073709551615, found -1",
            '{"prompt": "x", "stop": [1]}': "stop: expected a string, found 1",
            '{"prompt": "x", "stop": ""}': "stop",
            '{"prompt": "x", "greedy": 1}': "greedy: expected true or false, found 1",
            '{"prompt": "x", "logprobs": true}': "logprobs: expected a whole number",
            '{"prompt": "x", "logprobs": -2}': "logprobs",
            '{"prompt": "x", "deadline_s": -1}': "deadline_s",
            '{"prompt": "x", "bogus": 1}': 'unknown field "bogus": expected one of id, prompt, ',
            '{"prompt": "x", "id": ' + "[" * 100 + "]" * 100 + "}": "nested more than 32 deep",
            '{"prompt": "x", "id": ' + "[" * 1000000: "nested more than 32 deep",
            '{"prompt": "' + "hello " * 3000 + '"}': "the context of 1024",
            "hello " * 3000: "the context of 1024",
        }
        for line, part in cases.items():
            with self.subTest(line=line[:60]):
                self.assertIn(part, self.message(line))
        results = self.results_of(vitrine("run", "--batch", "-", stdin=b'{"prompt": "\xff"}\n'), 1)
        self.assertIn("byte", results[0]["error"]["message"])

    def test_all_at_once(self):
        result = vitrine("run", "--batch", "-", *GREEDY,
                         stdin=lines_of({"id": 5, "bogus": 1}, "", FRANCE, {"prompt": "", "id": [6]}))
        results = self.results_of(result, 1)
        self.assertEqual([r.get("id") for r in results], [5, None, None, [6]])
        self.assertEqual(["error" in r for r in results], [True, True, False, True])
        self.assertEqual(result.err, 'vitrine: 3 of 4 lines failed: see "error" in their results\n')

    def test_ends_of_lines(self):
        (hi,) = self.batch("hi")
        for text, count in ((b"", 0), (b"hi", 1), (b"hi\nhi", 2), (b"hi\r\nhi\r\n", 2)):
            with self.subTest(text=text):
                results = self.results_of(vitrine("run", "--batch", "-", *GREEDY, stdin=text))
                self.assertEqual([r["output_ids"] for r in results], [hi["output_ids"]] * count)
        self.assertIn("error", self.results_of(vitrine("run", "--batch", "-", *GREEDY, stdin=b"\n"), 1)[0])

    def test_a_line_without_an_end(self):
        endless = b"x" * (70 << 20)
        for text, count in ((endless, 1), (endless + b"\nhi\n", 2), (b"{" + endless + b"\nhi", 2)):
            results = self.results_of(vitrine("run", "--batch", "-", *GREEDY, stdin=text), 1)
            self.assertEqual(len(results), count)
            self.assertEqual(results[0]["error"]["message"], "the line has more than 67108864 bytes")
            self.assertTrue(all("text" in r for r in results[1:]))

    def test_bytes_that_are_not_utf8(self):
        self.assertEqual(len(self.results_of(vitrine("run", "--batch", "-", *GREEDY, stdin=b"\xff\xfe\na\xc3\n"))), 2)

    def test_usage(self):
        path = self.temp / "requests.txt"
        path.write_bytes(b"hi\n")
        for options, part in (
            (["hi"], "--batch"),
            (["--ids", "1"], "--ids"),
            (["--file", str(path)], "--file"),
            (["--top", "3"], "--top"),
            (["--temperature", "x"], "--temperature"),
        ):
            with self.subTest(options=options):
                self.assert_refuses(vitrine("run", "--batch", str(path), *options), 2, part)
        self.assert_refuses(vitrine("run", "--batch", "/nonexistent"), 2, "/nonexistent")
        self.assert_refuses(vitrine("run", "--batch", str(self.temp)), 2, "--batch")
        self.assert_refuses(vitrine("run", "--batch", str(path), "--model", "/nonexistent"), 1, "/nonexistent")


class BatchStreamTest(BatchTest):
    def start(self, *args):
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        process = start("run", "--batch", "-", *args, **pipes)
        for pipe in (process.stdin, process.stdout, process.stderr):
            self.addCleanup(pipe.close)
        self.addCleanup(process.kill)
        return process

    def test_an_answer_before_the_next_line(self):
        process = self.start(*GREEDY)
        for i in range(3):
            process.stdin.write(lines_of(FRANCE))
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["index"], i)
        process.stdin.close()
        self.assertEqual(process.wait(TIMEOUT_S), 0)

    def test_interrupted(self):
        process = self.start("--greedy", "--ignore-eos", "--max-tokens", "1000")
        process.stdin.write(lines_of({"prompt": FRANCE, "max_tokens": 1}, *[STORY] * 200))
        process.stdin.flush()
        first = json.loads(process.stdout.readline())
        self.assertEqual(first["text"], " Paris")
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line) for line in process.stdout]
        self.assertEqual(process.wait(TIMEOUT_S), 130)
        self.assertEqual(process.stderr.read(), b"")
        self.assertEqual([r["index"] for r in rest], list(range(1, len(rest) + 1)))
        self.assertEqual({r["finish_reason"] for r in rest}, {"cancelled"})
        self.assertLess(len(rest), 200)  # no more are read than can be used

    def test_interrupted_while_it_waits(self):
        process = self.start()
        wait_until_it_catches(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(TIMEOUT_S), process.stdout.read()), (130, b""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
