# SPDX-License-Identifier: Apache-2.0
"""The article's figures, with the real Qwen3-0.6B."""

import os
import unittest
from pathlib import Path

from program import FRANCE, ProgramTest


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
