"""What a run on a GPU needs: the one list of programs and files, for archives and for checkouts."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A program by its name in an archive's bin/, and where a build folder has its two kinds."""

    name: str
    gpu: str
    emulated: str = ""  # empty: what it tests does not exist on the emulated device

    def built(self, kind: str) -> str:
        """Path in the build folder; its last part is the CMake target. Empty: there is none."""
        return self.gpu if kind == "gpu" else self.emulated


def _test(name: str, emulated: bool = True) -> Program:
    folder = "tests/unit/cuda"
    return Program(f"gpu_{name}", f"{folder}/gpu_{name}", f"{folder}/unit_cuda_{name}" if emulated else "")


PROGRAMS = [
    _test("gemm"),
    _test("blas"),
    _test("rows"),
    _test("attention"),
    _test("sample"),
    _test("copy"),
    _test("backend"),
    _test("wgmma", emulated=False),
    Program("gpu_links", "tests/unit/ipc_device/gpu_links"),
    Program("bench_links", "bench/links/bench_links", "bench/links/bench_links_emulated"),
    Program("paceline", "paceline", "paceline_emulated"),
    Program("paceline_parity", "bench/parity/paceline_parity", "bench/parity/paceline_parity_emulated"),
    Program("paceline_cuda_bench", "bench/cuda/paceline_cuda_bench",
            "bench/cuda/paceline_cuda_bench_emulated"),
]

# Relative to the checkout, and to an archive's top folder: programs and scripts find them alike.
FILES = [
    "LICENSE",
    "bench/cache_folder.py",
    "bench/cuda/*.py",
    "bench/cuda/requirements.txt",
    "configs/shapes/*.toml",
    "configs/*.toml",
    "tests/cli/exactness_schema.json",
    "tests/fixtures/blocks/*.blocks",
    "tests/fixtures/blocks/*.f32",
    "tests/fixtures/models/*.gguf",
    "tests/fixtures/models/*.golden.*",
    "tests/fixtures/models/*.lora.safetensors",
    "tests/gpu",
    "tests/gpu_run/*.py",
    "tests/gpu_run/*.toml",
]

MANIFEST = "manifest.json"  # in an archive's top folder, and nowhere else
KINDS = ("gpu", "emulated")


def data_files(root: Path) -> list:
    """Every file of FILES below `root`, sorted. Raises FileNotFoundError for a pattern without one."""
    found = []
    for pattern in FILES:
        matches = [path for path in root.glob(pattern) if path.is_file()]
        if not matches:
            raise FileNotFoundError(f"{root}: nothing fits {pattern}")
        found += matches
    return sorted(path for path in set(found) if not path.name.endswith("_test.py"))
