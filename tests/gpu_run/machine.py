"""What of a run is looked up on the machine: the GPU, CUDA's tools and libraries, never packed."""

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path


def why_no_gpu() -> str:
    """Empty where nvidia-smi lists a GPU."""
    if not shutil.which("nvidia-smi"):
        return "no device: no nvidia-smi"
    try:
        asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return "no device: nvidia-smi -L did not end within 60 s"
    return "" if asked.returncode == 0 and "GPU 0" in asked.stdout else "no device: nvidia-smi lists none"


def gpu_count() -> int:
    """GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES leaves."""
    if not shutil.which("nvidia-smi"):
        return 0
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    listed = sum(line.startswith("GPU ") for line in asked.stdout.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed if visible is None else min(listed, len([word for word in visible.split(",") if word.strip()]))


def cuda_homes() -> list:
    """Folders of CUDA toolkits: $CUDA_HOME, $CUDA_PATH and the usual places."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    usual = [Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)]
    return [home for home in dict.fromkeys(named + usual) if home.is_dir()]


def package_folders() -> list:
    """Where the Python that runs this, and the first `python3` of PATH, keep packages."""
    folders = [Path(entry) for entry in [*sys.path, *site.getsitepackages()] if entry.endswith("-packages")]
    python = shutil.which("python3")
    if python:
        bin_folder = Path(os.path.realpath(os.path.dirname(python)))
        folders += sorted(bin_folder.parent.glob("lib/python3*/site-packages"))
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def library_folders() -> list:
    """Folders with a libcublas.so.12 or .13: of toolkits, and of pip's packages."""
    candidates = [home / lib for home in cuda_homes() for lib in ("lib64", "targets/x86_64-linux/lib")]
    candidates += [folder / inside for folder in package_folders()
                   for inside in ("nvidia/cu13/lib", "nvidia/cublas/lib")]
    return [folder for folder in candidates
            if any((folder / f"libcublas.so.{version}").is_file() for version in (12, 13))]


def compute_sanitizer() -> str:
    """Its path; empty where there is none."""
    found = shutil.which("compute-sanitizer")
    if found:
        return found
    places = [home / folder for home in cuda_homes() for folder in ("bin", "compute-sanitizer")]
    places += [folder / "nvidia/cu13/bin" for folder in package_folders()]
    return next((str(place / "compute-sanitizer") for place in places
                 if (place / "compute-sanitizer").is_file()), "")


def environment(source_tree: Path) -> dict:
    """For the programs: where their files are, and cuBLAS after what the machine searches anyway."""
    all_of = dict(os.environ)
    all_of["PACELINE_SOURCE_TREE"] = str(source_tree)
    folders = [all_of.get("LD_LIBRARY_PATH", ""), *map(str, library_folders())]
    all_of["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    if not all_of["LD_LIBRARY_PATH"]:
        del all_of["LD_LIBRARY_PATH"]
    return all_of
