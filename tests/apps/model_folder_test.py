# SPDX-License-Identifier: Apache-2.0
"""Model folders: configurations that are refused or followed, names in the Hugging Face cache."""

import os
import shutil
import tempfile
import unittest

from program import DEMO, DATA, FRANCE, EXACT, vitrine, stored_ints, stored, ProgramTest


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


if __name__ == "__main__":
    unittest.main(verbosity=2)
