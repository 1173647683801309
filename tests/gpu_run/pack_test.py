#!/usr/bin/env python3
"""Archives of `tests/gpu --pack`, made of the build folder PACELINE_BUILD: the one for a GPU is looked at,
the one of the emulated device is unpacked in a root with nothing but glibc, bash and python3 and runs there.

Exit code 77, with the reason, for a test that this machine cannot run.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import bare_root  # noqa: E402: found through the line above
import build  # noqa: E402
import elf  # noqa: E402
import pack  # noqa: E402
from contents import MANIFEST, PROGRAMS  # noqa: E402

MODEL = ROOT / "tests/fixtures/models/tiny-chat.gguf"
BUILD = Path(os.environ.get("PACELINE_BUILD", ROOT / "build/release"))


def pack_it(out: Path, *arguments) -> str:
    done = subprocess.run([sys.executable, "-B", ROOT / "tests/gpu", "--pack", out, "--build-dir", BUILD, "--no-build",
                           *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class PackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """One archive of the emulated device for all tests, with a model in three parts."""
        temporary = tempfile.TemporaryDirectory(prefix="paceline-pack-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.emulated = Path(temporary.name) / "emulated.tar.xz"
        cls.said = pack_it(cls.emulated, "--emulated", "--model", MODEL, "--split", "50K")

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="paceline-pack-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    @staticmethod
    def unpack(archive: Path, to: Path) -> Path:
        with tarfile.open(archive) as tar:
            tar.extractall(to, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
        return to / pack.TOP

    @unittest.skipUnless(build.has_nvcc(BUILD), "no nvcc here: there are no programs for a GPU")
    def test_an_archive_for_a_gpu_brings_every_library_but_glibc_and_the_driver(self):
        archive = self.folder / "out.tar.xz"
        said = pack_it(archive)
        self.assertIn(f"code for {build.cached(BUILD, 'PACELINE_CUDA_CODE')}", said)
        if build.cached(BUILD, "PACELINE_CUDA_CODE") == build.PACKED_ARCHITECTURES:
            self.assertLessEqual(archive.stat().st_size, pack.BYTES_MAX)
        top = self.unpack(archive, self.folder)
        inside = {path.name for path in (top / "lib").iterdir()}
        names = {path.name for path in (top / "bin").iterdir()}
        self.assertEqual(names, {program.name for program in PROGRAMS})
        for path in [*(top / "bin").iterdir(), *(top / "lib").iterdir()]:
            self.assertTrue(elf.is_elf(path), path)
            self.assertLessEqual(elf.from_elsewhere(path), inside, path)
            self.assertFalse([entry for entry in elf.search_path(path) if not entry.startswith("$ORIGIN")], path)
        self.assertFalse({name for name in inside if "cuda" in name or "cublas" in name})
        # Where there is no GPU it says so of each step and succeeds.
        ran = subprocess.run([top / "run", "--only", "machine", "--only", "kernels", "--only", "bench", "--out",
                              self.folder / "results", "--minutes", "5"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("machine: libraries | passed", ran.stdout)

    def test_an_archive_of_the_emulated_device_runs_in_a_bare_root(self):
        if bare_root.why_not():
            self.skipTest(bare_root.why_not())
        root = self.folder / "root"
        bare_root.make(root)
        top = self.unpack(self.emulated, root)
        self.assertFalse(list(root.glob("**/libstdc++*"))[len(list((top / "lib").glob("libstdc++*"))):],
                         "the bare root has libraries of its own")
        ran = bare_root.run(root, [f"/{pack.TOP}/run", "--only", "machine", "--only", "parity", "--only", "bench",
                                   "--minutes", "8", "--out", "/results"], 540)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        for row in ("machine: libraries | passed", "bench: tiny: copy,kernels,batches | passed",
                    "parity: llama-f32 | passed", "parity: tiny-chat | passed"):
            self.assertIn(row, ran.stdout)
        self.assertIn(", 0 failed,", ran.stdout)
        with tarfile.open(root / "results/logs.tar.gz") as tar:
            self.assertIn("logs/table.md", tar.getnames())

    def test_a_packed_model_comes_in_parts_that_a_run_joins(self):
        parts = sorted(self.emulated.parent.glob("emulated.tar.xz.model.*"))
        self.assertEqual(len(parts), 3, self.said)
        self.assertTrue(all(part.stat().st_size <= 50 << 10 for part in parts))
        top = self.unpack(self.emulated, self.folder)
        carried = self.folder / "carried"
        carried.mkdir()
        for part in parts:
            shutil.copy(part, carried)
        call = [top / "run", "--only", "equality", "--skip", "machine", "--minutes", "0.2", "--out",
                self.folder / "results", "--model-parts", carried]
        ran = subprocess.run(call, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertRegex(ran.stdout, r"equality: greedy, GPU and CPU \| passed .* \d+ greedy ids equal")
        (carried / parts[1].name).write_bytes(b"something else")
        ran = subprocess.run(call, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn(f"{parts[1].name}: not the part that the manifest describes", ran.stderr)

    def test_a_build_without_the_programs_is_refused_by_name(self):
        archive = self.folder / "out.tar.xz"
        done = subprocess.run([sys.executable, "-B", ROOT / "tests/gpu", "--pack", archive, "--emulated",
                               "--build-dir", self.folder, "--no-build"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"unit_cuda_gemm is not there")
        self.assertFalse(archive.exists())

    def test_the_manifest_is_in_archives_alone(self):
        self.assertFalse((ROOT / MANIFEST).exists())


if __name__ == "__main__":
    unittest.main()
