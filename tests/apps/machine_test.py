# SPDX-License-Identifier: Apache-2.0
"""The machine the program meets: other instructions, fewer cores, a system that says no."""

import contextlib
import ctypes
import errno
import functools
import json
import os
import platform
import shutil
import struct
import subprocess
import unittest

from program import BINARY, EXACT, FRANCE, TINY, TIMEOUT_S, ProgramTest, Result, environment, france, vitrine

X86 = platform.machine() == "x86_64"


def kernels_of(program, **options):
    """What `vitrine info` says about them: the one in use, and all by name."""
    result = program("info", "--json", "--model", str(TINY), **options)
    if result.code != 0:
        raise AssertionError(result)
    info = json.loads(result.out)
    return info["isa"], {table["name"]: table for table in info["isas"]}


@contextlib.contextmanager
def only_on(cores):
    """What is started here runs on no other cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class ThreadsTest(ProgramTest):
    def threads(self, *args):
        return self.json_line(vitrine("info", "--json", "--model", str(TINY), *args))["threads"]

    def test_as_many_as_there_are_cores(self):  # cases.md G03
        cores = sorted(os.sched_getaffinity(0))
        everywhere = self.threads()
        self.assertIn(everywhere, range(1, len(cores) + 1))  # fewer: a quota
        for count in range(1, everywhere + 1):
            with only_on(cores[:count]):
                self.assertEqual(self.threads(), count)
                self.assertEqual(self.threads("--threads", "3"), 3)  # who asks is given

    def test_any_sensible_number(self):  # server.md 81
        expected = self.json_line(france())["output_ids"]
        for threads in (1, 3, 100):
            with self.subTest(threads=threads):
                answer = self.run_json(
                    FRANCE, "--max-tokens", "8", "--greedy", *EXACT, "--threads", str(threads)
                )
                self.assertEqual((answer["threads"], answer["output_ids"]), (threads, expected))

    def test_no_other(self):  # server.md 81
        for threads in ("0", "-1", "1025", "99999999999999999999", "2.5", "1e2", "many", ""):
            with self.subTest(threads=threads):
                self.assert_refuses(vitrine("run", "hi", "--threads", threads), 2, "--threads", threads, "1 to 1024")


# ---- A system that does not grant the tile registers -------------------------------------------------------


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def refuse_tiles(error):
    """For this process and all it starts: arch_prctl(ARCH_REQ_XCOMP_PERM, …) fails, all else is as it was."""
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    arch_prctl, permission = 158, 0x1023
    number_at, argument_at = 0, 16  # in struct seccomp_data
    steps = [
        (load, 0, 0, number_at),
        (equal, 0, 3, arch_prctl),
        (load, 0, 0, argument_at),
        (equal, 0, 1, permission),
        (give, 0, 0, 0x00050000 | error),  # SECCOMP_RET_ERRNO
        (give, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value, pointer in ((38, 1, None), (22, 2, ctypes.byref(Filter(len(steps), code)))):
        # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def run_command(command, env, **more):
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(env),
        cwd="/",
        timeout=TIMEOUT_S,
        check=False,
        **more,
    )


@unittest.skipUnless(X86, "tile registers are x86-64's")
class RefusedTilesTest(ProgramTest):
    def without_tiles(self, *args, error=errno.EPERM, env=None):
        done = run_command([BINARY, *args], env, preexec_fn=lambda: refuse_tiles(error))
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def setUp(self):
        super().setUp()
        if not kernels_of(vitrine)[1]["amx"]["available"]:
            self.skipTest("this machine has no AMX to refuse")
        try:
            self.without_tiles("--version")
        except subprocess.SubprocessError as failure:
            self.skipTest(f"no system call filters here: {failure}")

    def test_the_next_table_is_chosen(self):  # cases.md I01
        expected = self.json_line(france())["output_ids"]
        for error in (errno.EPERM, errno.EINVAL, errno.ENOSYS):
            with self.subTest(error=errno.errorcode[error]):
                chosen, tables = kernels_of(self.without_tiles, error=error)
                self.assertFalse(tables["amx"]["available"])
                self.assertIn("does not grant", tables["amx"]["reason"])
                self.assertTrue(tables[chosen]["available"])
                self.assertTrue(chosen.startswith("avx512"), chosen)
                result = self.without_tiles(
                    "run", FRANCE, "--max-tokens", "8", "--greedy", *EXACT, "--json", error=error
                )
                answer = self.json_line(result)
                self.assertEqual((answer["isa"], answer["output_ids"]), (chosen, expected))

    def test_info_says_so(self):
        result = self.without_tiles("info", "--model", str(TINY))
        self.assert_runs(result)
        self.assertRegex(result.out.decode(), r"Kernels +avx512\w*: .*amx the system does not grant")

    def test_asked_for_they_are_refused(self):
        result = self.without_tiles("run", "hi", env={"VITRINE_ISA": "amx"})
        self.assert_refuses(result, 1, "amx", "does not grant")


# ---- Other CPUs --------------------------------------------------------------------------------------------

# As qemu's emulator has them: a name of a CPU and its features, and the best table it should run.
EMULATED_CPUS = {
    "Nehalem": "generic",
    "SandyBridge": "generic",  # AVX alone
    "Haswell": "avx2",
    "Skylake-Server": "avx2",  # its AVX-512 is not emulated
    "max,-fma": "generic",
    "max,-f16c": "generic",
    "max,-xsave": "generic",  # a system that does not keep the wide registers, though the CPU has them
}


@functools.cache
def emulator():
    """qemu-x86_64 that runs our program, or why there is none."""
    if not X86:
        return None, "the emulated CPUs are x86-64"
    found = shutil.which("qemu-x86_64")
    if found is None:
        return None, "needs qemu-x86_64 (Debian: qemu-user)"
    done = subprocess.run([found, BINARY, "--version"], capture_output=True, check=False, timeout=TIMEOUT_S)
    return found, None if done.returncode == 0 else "qemu-x86_64 does not run this build"


class EmulatedCpuTest(ProgramTest):  # cases.md I02
    def setUp(self):
        super().setUp()
        self.emulator, why_not = emulator()
        if why_not:
            self.skipTest(why_not)

    def on(self, cpu):
        def run(*args, env=None):
            done = run_command([self.emulator, "-cpu", cpu, BINARY, *args], env)
            lines = done.stderr.decode("utf-8", "replace").splitlines(keepends=True)
            ours = "".join(line for line in lines if "warning: TCG doesn't support" not in line)
            return Result(done.returncode, done.stdout, ours)

        return run

    def command(self, *how):
        return ("run", "--model", str(TINY), "--ids", "1,2,3", "--max-tokens", "3", "--greedy", "--json", *how)

    def test_the_choice_is_always_legal(self):
        expected = self.json_line(vitrine(*self.command(*EXACT)))["output_ids"]
        for cpu, best in EMULATED_CPUS.items():
            with self.subTest(cpu=cpu):
                run = self.on(cpu)
                answer = self.json_line(run(*self.command(*EXACT)))
                self.assertEqual((answer["isa"], answer["output_ids"]), (best, expected))
                self.assertEqual(self.json_line(run(*self.command("--weights", "int8")))["isa"], best)

    def test_what_the_cpu_lacks_is_refused(self):
        for cpu in ("Nehalem", "Haswell"):
            run = self.on(cpu)
            for name, table in kernels_of(run)[1].items():
                with self.subTest(cpu=cpu, table=name):
                    result = run(*self.command(*EXACT), env={"VITRINE_ISA": name})
                    if table["available"]:
                        self.assertEqual(self.json_line(result)["isa"], name)
                    else:
                        self.assert_refuses(result, 1, name, table["reason"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
