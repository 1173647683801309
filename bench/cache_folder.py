"""Paceline's cache folder, and what other scripts leave in it."""

import os
from pathlib import Path

XDG_CACHE = Path(os.environ.get("XDG_CACHE_HOME", ""))  # ignored if it is relative
CACHE = (XDG_CACHE if XDG_CACHE.is_absolute() else Path.home() / ".cache") / "paceline"
DEMO_MODEL = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"  # launch/fetch_model
LLAMA_CPP = CACHE / "llama.cpp-0.3.36"  # bench/build_llama_cpp
TRAINING_VENV = Path(os.environ.get("PACELINE_TRAINING_VENV") or CACHE / "training-venv").absolute()  # model/training/setup
CLIENTS_VENV = Path(os.environ.get("PACELINE_CLIENTS_VENV") or CACHE / "clients-venv").absolute()  # tests/clients/setup
