# SPDX-License-Identifier: Apache-2.0
"""Builds a small tree for each rule of tools/check_includes.py and breaks it."""
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("check_includes", SCRIPT)
check_includes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_includes)

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"

# A tree in which everything is as it should be.
FINE = {
    "include/vitrine/error.h": HEADER + "#include <string>\n",
    "include/vitrine/types.h": HEADER + "#include <vitrine/error.h>\n",
    "include/vitrine/probe.h": HEADER,
    "include/vitrine/engine.h": HEADER + "#include <vitrine/types.h>\n",
    "src/base/check.h": HEADER + "#include <vitrine/error.h>\n",
    "src/base/float16.h": HEADER,
    "src/base/json.cpp": SPDX + '#include "base/check.h"\n#include <simdjson.h>\n',
    "src/kernels/kernels.h": HEADER + "#include <cstdint>\n",
    "src/kernels/dispatch.h": HEADER + "#include <string>\n#include \"kernels/kernels.h\"\n",
    "src/kernels/avx2.cpp": SPDX + '#include <immintrin.h>\n#include <cstdint>\n#include "kernels/kernels.h"\n',
    "src/kernels/generic.cpp": SPDX + '#include <cmath>\n#include "base/float16.h"\n#include "kernels/dispatch.h"\n',
    "src/tensor/tensor.h": HEADER + '#include "base/check.h"\n',
    "src/checkpoint/config.h": HEADER + '#include "tensor/tensor.h"\n',
    "src/ops/linear.h": HEADER + '#include <vitrine/probe.h>\n#include "kernels/kernels.h"\n#include "tensor/tensor.h"\n',
    "src/models/qwen3.cpp": SPDX + '#include "checkpoint/config.h"\n#include "ops/linear.h"\n',
    "src/engine/engine.cpp": SPDX + '#include <vitrine/engine.h>\n#include "ops/linear.h"\n',
    "src/insight/lens.cpp": SPDX + "#include <vitrine/engine.h>\n",
    "apps/vitrine/commands.h": HEADER,
    "apps/vitrine/main.cpp": SPDX + '#include <CLI/CLI.hpp>\n#include <vitrine/engine.h>\n#include "commands.h"\n',
    "examples/hello.cpp": SPDX + "#include <vitrine/engine.h>\n",
    "tests/base/json_test.cpp": SPDX + '#include "base/check.h"\n',
    "tests/data/made_by.py": "# others' data needs no line\n",
    "CMakeLists.txt": "# SPDX-License-Identifier: Apache-2.0\n",
    ".ci/run": "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n",
    "README.md": "no code\n",
    "build/dev/generated.h": "no line, no pragma\n",
    "out/CMakeCache.txt": "",
    "out/generated.h": "another build tree\n",
}


class CheckIncludes(unittest.TestCase):
    def violations(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**FINE, **changes}.items():
                path = Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_includes.Checker(root).run()

    def refused(self, name, text, *expected, start=SPDX):
        """`name` with `text` after its first lines gives one violation, in that file, that says all of `expected`."""
        found = self.violations({name: start + text})
        self.assertEqual(len(found), 1, found)
        for part in (name + ":", *expected):
            self.assertIn(part, found[0])

    def test_fine_tree(self):
        self.assertEqual(self.violations({}), [])

    def test_upwards(self):
        for name, include in {
            "src/base/x.cpp": "tensor/tensor.h",
            "src/quant/x.cpp": "tensor/tensor.h",
            "src/kernels/x.cpp": "tensor/tensor.h",
            "src/tensor/x.cpp": "ops/linear.h",
            "src/checkpoint/x.cpp": "ops/linear.h",
            "src/ops/x.cpp": "checkpoint/config.h",
            "src/cache/x.cpp": "ops/linear.h",
            "src/text/x.cpp": "tensor/tensor.h",
            "src/insight/x.cpp": "ops/linear.h",
            "src/server/x.cpp": "ops/linear.h",
            "apps/vitrine/x.cpp": "base/check.h",
            "examples/x.cpp": "base/check.h",
            "include/vitrine/x.h": "base/check.h",
        }.items():
            with self.subTest(name):
                start = HEADER if name.endswith(".h") else SPDX
                self.refused(name, f'#include "{include}"\n', "may not include", include, start=start)

    def test_kernels_know_one_header_of_base(self):
        self.refused("src/kernels/x.cpp", '#include "base/check.h"\n', "may not include")

    def test_public_headers(self):
        for name in ("src/base/x.cpp", "src/checkpoint/x.cpp", "src/ops/x.cpp", "src/models/x.cpp", "src/text/x.cpp"):
            with self.subTest(name):
                self.assertEqual(self.violations({name: SPDX + "#include <vitrine/types.h>\n"}), [])
                self.refused(name, "#include <vitrine/engine.h>\n", "may not include", "vitrine/engine.h")
        self.refused("src/checkpoint/x.cpp", "#include <vitrine/probe.h>\n", "may not include")

    def test_other_spellings(self):
        self.refused("src/base/x.cpp", '  #  include   "tensor/tensor.h"  // why not\n', ":2:", "may not include")
        self.refused("src/base/x.cpp", '#include "../tensor/tensor.h"\n', "may not include")
        self.refused("src/base/x.cpp", "#include <tensor/tensor.h>\n", "may not include")
        self.refused("src/base/x.cpp", '#include "vitrine/engine.h"\n', "may not include")
        self.refused("src/base/x.cpp", "#include HEADER_NAME\n", "can be checked")
        self.assertEqual(self.violations({"src/base/x.cpp": SPDX + '// #include "tensor/tensor.h"\n'}), [])

    def test_other_app_is_not_own_folder(self):
        self.refused("apps/second/main.cpp", '#include "../vitrine/commands.h"\n', "apps/second may not include")

    def test_missing_file(self):
        self.refused("src/tensor/x.cpp", '#include "base/gone.h"\n', "is not there")
        self.refused("src/tensor/x.cpp", '#include "gone.h"\n', "is not there")
        self.refused("src/engine/x.cpp", "#include <vitrine/gone.h>\n", "is not there")

    def test_folder_without_a_row(self):
        self.refused("src/misc/x.cpp", "", "not in the table")

    def test_instruction_set_files(self):
        for include in ("<cmath>", "<algorithm>", "<cstddef>", '"base/float16.h"', "<vitrine/types.h>"):
            with self.subTest(include):
                self.refused("src/kernels/avx512bf16.cpp", f"#include {include}\n", "instruction-set file")
        self.assertEqual(self.violations({"src/kernels/neon.cpp": SPDX + "#include <arm_neon.h>\n"}), [])

    def test_headers_that_instruction_set_files_reach(self):
        self.refused("src/kernels/kernels.h", "#include <vector>\n", "avx2.cpp reaches", start=HEADER)
        found = self.violations({
            "src/kernels/kernels.h": HEADER + '#include "kernels/tiles.h"\n',
            "src/kernels/tiles.h": HEADER + "#include <cstddef>\n#include <array>\n",
        })
        self.assertEqual(len(found), 1, found)
        self.assertIn("src/kernels/tiles.h:4:", found[0])

    def test_cycle(self):
        found = self.violations({
            "src/ops/a.h": HEADER + '#include "ops/b.h"\n',
            "src/ops/b.h": HEADER + '#include "ops/c.h"\n',
            "src/ops/c.h": HEADER + '#include "ops/a.h"\n',
        })
        self.assertEqual(found, ["src/ops/c.h:3: cycle: src/ops/a.h -> src/ops/b.h -> src/ops/c.h -> src/ops/a.h"])
        self.refused("src/ops/self.h", '#include "self.h"\n', "cycle", start=HEADER)

    def test_pragma_once(self):
        for name in ("src/base/x.h", "include/vitrine/x.h", "apps/vitrine/x.h"):
            with self.subTest(name):
                self.refused(name, "", "no #pragma once")

    def test_spdx(self):
        for name in ("src/base/x.cpp", "tests/base/x.cpp", "tools/x.py", "tools/x.sh", "cmake/x.cmake",
                     "cmake/Config.cmake.in", "bench/CMakeLists.txt"):
            with self.subTest(name):
                self.refused(name, "# nothing\n", "SPDX", start="")
        self.refused(".ci/run", "#!/bin/sh\n", "SPDX", start="")

    def test_table_goes_downwards_only(self):
        rows = {row[4:]: [entry for entry in allowed if entry.isidentifier()]
                for row, allowed in check_includes.ALLOWED.items() if row.startswith("src/")}
        order = []
        while len(order) < len(rows):
            ready = [row for row in rows if row not in order and set(rows[row]) <= set(order)]
            self.assertTrue(ready, f"a cycle among {set(rows) - set(order)}")
            order += ready

    def test_exit_status_and_output(self):
        with tempfile.TemporaryDirectory() as root:
            run = lambda: subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
            self.assertEqual(run().returncode, 1)  # nothing to check is not fine
            source = Path(root, "src/base/x.cpp")
            source.parent.mkdir(parents=True)
            source.write_text(SPDX)
            done = run()
            self.assertEqual((done.returncode, done.stdout), (0, "includes: 1 files, all downwards\n"))
            source.write_text("")
            done = run()
            self.assertEqual(done.returncode, 1)
            self.assertIn("src/base/x.cpp:1:", done.stdout)


if __name__ == "__main__":
    unittest.main()
