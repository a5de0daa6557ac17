#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face tokenizers on the texts of tokenizer_bench, one thread: MB/s of CPU time, best of several runs.

usage: tokenizer_peer.py TOKENIZER_JSON TEXT_FILE...      (needs: pip install tokenizers)
"""
import os
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402  (reads the environment when it is imported)

ROUNDS = 3


def best_of(work):
    """The shortest CPU time of a few runs, in seconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def main(path, files):
    load = best_of(lambda: tokenizers.Tokenizer.from_file(path))
    print(f"tokenizers {tokenizers.__version__}   load {load * 1000:.0f} ms")
    tokenizer = tokenizers.Tokenizer.from_file(path)
    for file in files:
        data = Path(file).read_bytes()
        text = data.decode("utf-8", "replace")
        full = best_of(lambda: tokenizer.encode(text, add_special_tokens=False))
        fast = best_of(lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False))  # without offsets
        print(f"{Path(file).name}: encode {len(data) / full / 1e6:.2f} MB/s, "
              f"encode_batch_fast {len(data) / fast / 1e6:.2f} MB/s")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
