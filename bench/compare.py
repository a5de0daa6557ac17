#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp beside `vitrine bench --against MODEL.gguf`: loads a model once and measures what it is asked.

usage: compare.py MODEL.gguf --threads N      (needs: pip install llama-cpp-python, built on this machine)

A command a line on standard input, a JSON object a line on standard output. The first comes once the model is loaded:
  {"name": "llama.cpp", "system": ..., "load_s": ...}
  prefill N    ->  {"tokens_per_s": ...}   a prompt of N tokens, logits for the last
  decode D T   ->  {"tokens_per_s": ...}   T tokens one by one after D others
  batch B T    ->  {"tokens_per_s": ...}   T tokens each of B sequences that start with 128, a token each a step
What goes wrong is {"error": ...}. Everything but the lengths is llama.cpp's default: flash attention, the type of the
KV cache, how sequences share it. The end of the input ends it.
"""
import argparse
import json
import os
import sys
import time

BATCH_PROMPT = 128  # tokens that each sequence of a batch starts with
MICRO_BATCH = 512  # tokens that one pass computes


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


def some_ids(count, vocab_size, seed):
    """Ids that look random and are the same in every run."""
    ids, state = [], seed + 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocab_size)
    return ids


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

    def finish(self):
        self.lib.llama_synchronize(self.context)

    def close(self):
        self.lib.llama_batch_free(self.batch)
        self.lib.llama_free(self.context)


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

    def answer(self, line):
        measures = {"prefill": (self.prefill, 1), "decode": (self.decode, 2), "batch": (self.decode_batch, 2)}
        name, *words = line.split()
        measure, count = measures.get(name, (None, 0))
        if measure is None or len(words) != count or not all(word.isdecimal() for word in words):
            raise Failure(f"expected prefill N, decode D T or batch B T, found {line.strip()!r}")
        return {"tokens_per_s": measure(*map(int, words))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    # The library may print: what it says goes to standard error, the answers alone to standard output.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)

        def say(answer):
            print(json.dumps(answer), file=out, flush=True)

        try:
            peer = Peer(options.model, options.threads)
            say(peer.hello())
            for line in sys.stdin:
                if line.strip():
                    say(peer.answer(line))
        except Failure as failure:
            say({"error": str(failure)})
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)  # whoever asked is gone
