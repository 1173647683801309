"""kernel_code.py on what a cuobjdump printed once, shortened: no CUDA toolkit is needed."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import kernel_code  # noqa: E402: found through the line above

BATCH = "_ZN8paceline4cuda10gemm_batchILNS_10PackedTypeE{}ELi1ELi2EEEvNS0_8GemmArgsE"
ROTATE = "_ZN8paceline4cuda39_GLOBAL__N__5cf21c00_7_rows_cu_298d5af46rotateENS0_10RotateArgsE"
HEAD = """
Fatbin elf code:
================
arch = {}
code version = [1,8]
host = linux
compile_size = 64bit
"""
RESOURCES = """
Resource usage:
 Common:
  GLOBAL:0
""" + "".join(f""" Function {name}:
  REG:{registers} STACK:{stack} SHARED:1024 LOCAL:{local} CONSTANT[0]:696 TEXTURE:0 SURFACE:0 SAMPLER:0
""" for name, registers, stack, local in [(BATCH.format(1), 80, 0, 0), (BATCH.format(4), 101, 16, 8), (ROTATE, 32, 0, 0)])
CODE = """
\t\tFunction : {}
\t.headerflags\t@"EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                                          /* 0x00000a00ff017b82 */
                                                                                                   /* 0x000ff00000000800 */
        /*0010*/              @!P0 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;                           /* 0x0000000c0804723c */
                                                                                                   /* 0x000ff00000000800 */
        /*0020*/             @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;                                     /* 0x0000000104047890 */
                                                                                                   /* 0x000fe2000fffe03f */
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R14, R4 ;                           /* 0x0000000e0804723c */
                                                                                                   /* 0x000ff00000000800 */
        /*0040*/                   EXIT ;                                                          /* 0x000000000000794d */
                                                                                                   /* 0x000fea0003800000 */
        /*0050*/                   BRA 0x50;                                                       /* 0xfffffffc00fc7947 */
                                                                                                   /* 0x000fc0000383ffff */
        /*0060*/                   NOP;                                                            /* 0x0000000000007918 */
                                                                                                   /* 0x000fc00000000000 */
        /*0070*/                   NOP;                                                            /* 0x0000000000007918 */
                                                                                                   /* 0x000fc00000000000 */
\t\t..........
"""
# Prints what was asked for; what it is asked about is the word after the option.
CUOBJDUMP = f"""#!{sys.executable}
import sys
from pathlib import Path
print(Path(__file__ + sys.argv[1]).read_text())
"""


class KernelCode(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.tool = self.folder / "cuobjdump"
        self.tool.write_text(CUOBJDUMP, encoding="utf-8")
        self.tool.chmod(0o755)
        self.object = self.folder / "kernels.o"
        self.object.write_bytes(b"")

    def say(self, *architectures: str):
        """What the tool prints, for each of these."""
        code = "".join(CODE.format(name) for name in (BATCH.format(1), BATCH.format(4), ROTATE))
        for option, text in (("-res-usage", RESOURCES), ("-sass", code)):
            Path(f"{self.tool}{option}").write_text("".join(HEAD.format(a) + text for a in architectures), encoding="utf-8")

    def run_script(self, *words, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-B", str(HERE / "kernel_code.py"), *map(str, words)], capture_output=True,
                              text=True, check=False, env={**os.environ, **variables})

    def table(self, *words) -> list:
        done = self.run_script(self.object, "--cuobjdump", self.tool, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line for line in done.stdout.splitlines() if line.startswith("|")]

    def test_a_table_has_a_line_for_each_kernel_with_names_instead_of_numbers(self):
        self.say("sm_90a")
        self.assertEqual(self.table()[2:], [
            "| `gemm_batch<BF16, 1, 2>` | 80 | 1,024 | 0 | 6 | 2 | 128 |",
            "| `gemm_batch<Q4, 1, 2>` | 101 | 1,024 | 24 | 6 | 2 | 128 |",
            "| `rotate` | 32 | 1,024 | 0 | 6 | 2 | 128 |"])

    def test_kernels_are_chosen_by_name(self):
        self.say("sm_90a")
        self.assertEqual([line.split(" | ")[0] for line in self.table("--only", "Q4|rotate")[2:]],
                         ["| `gemm_batch<Q4, 1, 2>`", "| `rotate`"])
        done = self.run_script(self.object, "--cuobjdump", self.tool, "--only", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no kernels like 'nothing'", done.stderr)

    def test_each_architecture_has_a_table_or_one_is_chosen(self):
        self.say("sm_80", "sm_90a")
        self.assertEqual(len(self.table()), 2 * 5)
        self.assertEqual(len(self.table("--arch", "sm_80")), 5)
        done = self.run_script(self.object, "--cuobjdump", self.tool, "--arch", "sm_100")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it has sm_80, sm_90a", done.stderr)

    def test_a_missing_tool_or_file_is_said_in_one_line(self):
        self.say("sm_90a")
        done = self.run_script(self.object, "--cuobjdump", self.folder / "absent")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("no cuobjdump in", done.stderr)
        self.assertIn("--cuobjdump FILE", done.stderr)
        done = self.run_script(self.folder / "absent.o", "--cuobjdump", self.tool)
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not exist", done.stderr)

    def test_a_tool_that_fails_is_quoted(self):
        self.tool.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no device code')\n", encoding="utf-8")
        done = self.run_script(self.object, "--cuobjdump", self.tool)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no device code", done.stderr)

    def test_names_of_values_are_those_of_the_headers(self):
        enums = kernel_code.read_enums(kernel_code.HEADERS)
        self.assertEqual(enums["PackedType"][:5], ["F32", "BF16", "F16", "Int8", "Q4"])
        self.assertEqual(enums["FinishKind"][:2], ["Store", "Residual"])


if __name__ == "__main__":
    unittest.main()
