#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp beside `vitrine bench --against MODEL.gguf`: loads a model once and measures what it is asked.

usage: compare.py MODEL.gguf --threads N      (needs: pip install llama-cpp-python, built on this machine)
       compare.py MODEL.gguf --threads N --vitrine PROGRAM [--requests N ...] [-- OPTIONS OF vitrine bench engine]

A command a line on standard input, a JSON object a line on standard output. The first comes once the model is loaded:
  {"name": "llama.cpp", "system": ..., "load_s": ...}
  prefill N    ->  {"tokens_per_s": ...}   a prompt of N tokens, logits for the last
  decode D T   ->  {"tokens_per_s": ...}   T tokens one by one after D others
  batch B T    ->  {"tokens_per_s": ...}   T tokens each of B sequences that start with 128, a token each a step
  engine N C P O   N requests of P + O tokens, C at once, greedy, prompts in chunks beside those that decode:
               ->  {"tokens_per_s": ..., "total_tokens_per_s": ..., "ttft_ms": {"p50": ...}, "itl_ms": {...}}
What goes wrong is {"error": ...}. Everything but the lengths is llama.cpp's default: flash attention, the type of the
KV cache, how sequences share it. The end of the input ends it.

With --vitrine it asks itself: `vitrine bench engine` and the same requests here take turns, and the medians of both and
their ratio are printed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

BATCH_PROMPT = 128  # tokens that each sequence of a batch starts with
MICRO_BATCH = 512  # tokens that one pass computes
REST_S = 0.3  # until the threads of whoever ran last have gone to sleep


class Failure(Exception):
    """A line for people."""


def load_library():
    try:
        import llama_cpp
    except ImportError as error:
        raise Failure(f"the package llama_cpp cannot be loaded by {sys.executable}: {error}") from error
    except OSError as error:  # its shared library
        raise Failure(f"the library of llama_cpp cannot be loaded: {error}") from error
    return llama_cpp


def load_numpy():
    try:
        import numpy
    except ImportError as error:
        raise Failure(f"the package numpy cannot be loaded by {sys.executable}: {error}") from error
    return numpy


def some_ids(count, vocab_size, seed):
    """Ids that look random and are the same in every run."""
    ids, state = [], seed + 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocab_size)
    return ids


def percentiles(samples):
    """In milliseconds, between two samples on the straight line from one to the other; None without samples."""
    samples = sorted(samples)

    def below(share):
        left, part = divmod(share * (len(samples) - 1), 1)
        left = int(left)
        right = min(left + 1, len(samples) - 1)
        return 1000 * (samples[left] + part * (samples[right] - samples[left]))

    return {"p50": below(0.5), "p90": below(0.9), "p99": below(0.99)} if samples else None


class Session:
    """A context of the library: `sequences` of at most `length` tokens each."""

    def __init__(self, lib, model, threads, length, sequences):
        self.lib = lib
        self.length = length
        params = lib.llama_context_default_params()
        params.n_ctx = length * sequences
        params.n_seq_max = sequences
        params.n_batch = max(MICRO_BATCH, sequences)
        params.n_ubatch = MICRO_BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = lib.llama_init_from_model(model, params)
        if not self.context:
            raise Failure(f"llama.cpp has no context for {sequences} sequences of {length} tokens")
        self.batch = lib.llama_batch_init(params.n_batch, 0, 1)

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def run(self, rows):
        """Rows of (token, position, sequence, whether its logits are wanted), in one pass."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        code = self.lib.llama_decode(self.context, batch)
        if code != 0:
            raise Failure(f"llama_decode failed with code {code} on {len(rows)} rows")

    def prompt(self, ids, sequence=0):
        for first in range(0, len(ids), MICRO_BATCH):
            part = ids[first : first + MICRO_BATCH]
            self.run([(token, first + i, sequence, first + i == len(ids) - 1) for i, token in enumerate(part)])

    def forget(self, sequence):
        self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(self.context), sequence, -1, -1)

    def finish(self):
        self.lib.llama_synchronize(self.context)

    def close(self):
        self.lib.llama_batch_free(self.batch)
        self.lib.llama_free(self.context)


class Running:
    """A request that has a sequence of a session."""

    def __init__(self, ids, sequence):
        self.ids = ids
        self.sequence = sequence
        self.read = 0  # of the ids
        self.start = time.perf_counter()
        self.times = []  # when each token was there

    def rows(self, most):
        """Its next ones, and whether the last of them gives a token."""
        end = min(self.read + most, len(self.ids))
        rows = [(self.ids[i], i, self.sequence, i == len(self.ids) - 1) for i in range(self.read, end)]
        self.read = end
        return rows

    def decodes(self):
        return bool(self.times)

    def accept(self, token):
        self.ids.append(token)
        self.times.append(time.perf_counter())


class Traffic:
    """Requests that share a session, as many at once as it has sequences; the next one begins when one is done."""

    def __init__(self, session, sequences, prompts, output, best):
        self.session = session
        self.free = list(range(sequences))[::-1]
        self.prompts = prompts[::-1]
        self.output = output
        self.best = best  # the likeliest token after a row of the last pass
        self.running = []
        self.done = []

    def admit(self):
        while self.prompts and self.free:
            self.running.append(Running(self.prompts.pop(), self.free.pop()))

    def step(self):
        """A row of each that decodes, and of the prompts what fits beside them, in one pass."""
        rows, ends = [], []
        for request in sorted(self.running, key=lambda request: not request.decodes()):
            part = request.rows(MICRO_BATCH - len(rows))
            rows += part
            if part and part[-1][3]:
                ends.append((len(rows) - 1, request))
        self.session.run(rows)
        for row, request in ends:
            request.accept(self.best(row))
        for request in [request for request in self.running if len(request.times) == self.output]:
            self.session.forget(request.sequence)
            self.running.remove(request)
            self.free.append(request.sequence)
            self.done.append(request)

    def run(self):
        self.admit()
        while self.running:
            self.step()
            self.admit()
        return self.done


class Peer:
    def __init__(self, path, threads):
        self.lib = lib = load_library()
        self.threads = threads
        self.silent = lib.llama_log_callback(lambda *_: None)  # kept: the library calls it
        lib.llama_log_set(self.silent, None)
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        start = time.perf_counter()
        self.model = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            raise Failure(f"{path}: llama.cpp cannot load it")
        self.load_s = time.perf_counter() - start
        self.vocab_size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.sessions = {}  # by number of sequences

    def hello(self):
        system = self.lib.llama_print_system_info().decode("utf-8", "replace").strip()
        return {"name": "llama.cpp", "system": system, "load_s": self.load_s}

    def session(self, length, sequences=1):
        """One that is long enough, empty."""
        session = self.sessions.get(sequences)
        if session is None or session.length < length:
            if session is not None:
                session.close()
            session = self.sessions[sequences] = Session(self.lib, self.model, self.threads, length, sequences)
        session.clear()
        return session

    def ids(self, count, seed=0):
        return some_ids(count, self.vocab_size, seed)

    def prefill(self, tokens):
        session, ids = self.session(tokens + 1), self.ids(tokens)
        start = time.perf_counter()
        session.prompt(ids)
        session.finish()
        return tokens / (time.perf_counter() - start)

    def decode(self, depth, tokens):
        depth = max(depth, 1)
        session, ids = self.session(depth + tokens + 1), self.ids(depth + tokens)
        session.prompt(ids[:depth])
        session.finish()
        start = time.perf_counter()
        for position in range(depth, depth + tokens):
            session.run([(ids[position], position, 0, True)])
            session.finish()
        return tokens / (time.perf_counter() - start)

    def decode_batch(self, sequences, tokens):
        session = self.session(BATCH_PROMPT + tokens + 1, sequences)
        ids = [self.ids(BATCH_PROMPT + tokens, seed) for seed in range(sequences)]
        for sequence in range(sequences):
            session.prompt(ids[sequence][:BATCH_PROMPT], sequence)
        session.finish()
        start = time.perf_counter()
        for position in range(BATCH_PROMPT, BATCH_PROMPT + tokens):
            session.run([(ids[sequence][position], position, sequence, True) for sequence in range(sequences)])
            session.finish()
        return sequences * tokens / (time.perf_counter() - start)

    def engine(self, count, concurrency, prompt, output):
        if not 0 < concurrency <= MICRO_BATCH or min(count, prompt, output) < 1:
            raise Failure(f"expected 1 to {MICRO_BATCH} requests at once, of at least a token each")
        numpy = load_numpy()
        session = self.session(prompt + output, concurrency)
        prompts = [self.ids(prompt, seed + 1) for seed in range(count)]

        def best(row):
            logits = self.lib.llama_get_logits_ith(session.context, row)
            return int(numpy.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax())

        start = time.perf_counter()
        done = Traffic(session, concurrency, prompts, output, best).run()
        seconds = time.perf_counter() - start
        return {
            "tokens_per_s": count * output / seconds,
            "total_tokens_per_s": count * (prompt + output) / seconds,
            "ttft_ms": percentiles([request.times[0] - request.start for request in done]),
            "itl_ms": percentiles([b - a for request in done for a, b in zip(request.times, request.times[1:])]),
        }

    def answer(self, line):
        measures = {
            "prefill": (self.prefill, 1),
            "decode": (self.decode, 2),
            "batch": (self.decode_batch, 2),
            "engine": (self.engine, 4),
        }
        name, *words = line.split()
        measure, count = measures.get(name, (None, 0))
        if measure is None or len(words) != count or not all(word.isdecimal() for word in words):
            raise Failure(f"expected prefill N, decode D T, batch B T or engine N C P O, found {line.strip()!r}")
        found = measure(*map(int, words))
        return found if isinstance(found, dict) else {"tokens_per_s": found}


def ours(options):
    """What `vitrine bench engine` says, with the names that engine() has."""
    command = [options.vitrine, "bench", "engine", "--json", "--threads", str(options.threads)]
    for name in ("requests", "concurrency", "prompt-tokens", "output-tokens"):
        command += [f"--{name}", str(getattr(options, name.replace("-", "_")))]
    try:
        done = subprocess.run([*command, *options.more], stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise Failure(f"{options.vitrine} cannot be started: {error}") from error
    if done.returncode != 0:
        raise Failure(f"{options.vitrine} ended with exit code {done.returncode}")
    answer = json.loads(done.stdout)
    return {**answer, "tokens_per_s": answer["throughput_tokens_per_s"]}


# What a round's answer is asked for: a name for people, and the keys that lead to it.
FIGURES = [
    ("output tokens/s", ["tokens_per_s"]),
    ("tokens/s with prompts", ["total_tokens_per_s"]),
    *((f"first token ms {p}", ["ttft_ms", p]) for p in ("p50", "p90", "p99")),
    *((f"token to token ms {p}", ["itl_ms", p]) for p in ("p50", "p90", "p99")),
]


def figure(answer, keys):
    for key in keys:
        answer = answer[key] if answer else None
    return answer


def take_turns(peer, options, write):
    """Rounds of both, one after the other, the first not counted; then a line for each figure."""
    rounds = []
    for _ in range(options.rounds + 1):
        mine = ours(options)
        time.sleep(REST_S)
        theirs = peer.engine(options.requests, options.concurrency, options.prompt_tokens, options.output_tokens)
        time.sleep(REST_S)
        rounds.append((mine, theirs))
    write(f"{options.requests} requests of {options.prompt_tokens} + {options.output_tokens} tokens, "
          f"{options.concurrency} at once, {options.threads} threads; medians of {options.rounds}")
    write(f"{'':24}{'vitrine':>12}{'llama.cpp':>12}{'ratio':>8}")
    for name, keys in FIGURES:
        pairs = [(figure(mine, keys), figure(theirs, keys)) for mine, theirs in rounds[1:]]
        if any(None in pair for pair in pairs):
            continue
        mine, theirs = (statistics.median(values) for values in zip(*pairs))
        write(f"{name:24}{mine:12.2f}{theirs:12.2f}{mine / theirs:8.2f}")


def answer_lines(peer, write):
    write(json.dumps(peer.hello()))
    for line in sys.stdin:
        if line.strip():
            write(json.dumps(peer.answer(line)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="What comes after -- goes to vitrine bench engine.")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vitrine", help="the program to take turns with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.more = words[end + 1 :]
    # The library may print: what it says goes to standard error, the answers alone to standard output.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)

        def write(line):
            print(line, file=out, flush=True)

        try:
            peer = Peer(options.model, options.threads)
            if options.vitrine:
                take_turns(peer, options, write)
            else:
                answer_lines(peer, write)
        except Failure as failure:
            if options.vitrine:
                print(f"compare.py: {failure}", file=sys.stderr)
            else:
                write(json.dumps({"error": str(failure)}))
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # whoever asked is gone
