"""The scripts of launch/: what they print, and what they say when something is missing."""

import os
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, ROOT, TINY, demo_model, environment, needs_demo_model


class Scripts(CliTest):
    def script(self, name: str, *args: str, **variables: str | None) -> subprocess.CompletedProcess:
        return subprocess.run([str(ROOT / "launch" / name), *args], capture_output=True, text=True, timeout=120,
                              env=environment(**variables), check=False)

    def test_the_users_own_model_always_wins(self):
        self.assertEqual(self.script("fetch_model", TINY).stdout.strip(), TINY)
        self.assertEqual(self.script("fetch_model", PACELINE_MODEL=TINY).stdout.strip(), TINY)
        self.assertEqual(self.script("fetch_model", TINY, PACELINE_MODEL="/nonexistent").stdout.strip(), TINY)
        folder = str(ROOT / "tests/fixtures/folders/llama3-bf16")
        self.assertEqual(self.script("fetch_model", folder).stdout.strip(), folder)
        self.assertEqual(self.script("fetch_model", PACELINE_MODEL=folder).stdout.strip(), folder)

    def test_the_users_own_model_must_exist(self):
        for wrong, why in (("/nonexistent/m.gguf", "does not exist"), (str(self.folder), "is a directory without config.json")):
            done = self.script("fetch_model", wrong)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)

    def test_without_a_network_the_message_says_what_to_do_and_nothing_is_left(self):
        done = self.script("fetch_model", XDG_CACHE_HOME=str(self.folder), PIP_INDEX_URL="http://127.0.0.1:9/simple",
                           PIP_RETRIES="0", PIP_CONFIG_FILE=os.devnull, PIP_EXTRA_INDEX_URL=None,
                           PIP_FIND_LINKS=None, PIP_NO_INDEX=None, PIP_PROXY=None, http_proxy=None, https_proxy=None)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        for part in ("PIP_INDEX_URL", "pip download", "PACELINE_MODEL"):
            self.assertIn(part, done.stderr)
        self.assertEqual(os.listdir(self.folder / "paceline"), [])

    @needs_demo_model
    def test_a_cached_model_is_found_at_once_without_any_network(self):
        cache = self.folder / "paceline"
        cache.mkdir()
        link = cache / "SmolLM2-135M-Instruct.Q4_1.gguf"
        link.symlink_to(demo_model())
        done = self.script("fetch_model", XDG_CACHE_HOME=str(self.folder), PIP_INDEX_URL="http://127.0.0.1:9/simple")
        self.assertEqual(done.stdout.strip(), str(link))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_setup_has_nothing_to_do_where_everything_is_installed(self):
        done = self.script("setup", "--tests")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_setup_and_try_refuse_what_they_do_not_know(self):
        done = self.script("setup", "--everything")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--everything", done.stderr)
        done = self.script("try")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no prompt", done.stderr)

    def test_projections_of_models_that_are_not_here(self):
        out = self.folder / "projections.tsv"
        command = [str(ROOT / "bench/projections.py"), "--out", str(out), "--paceline", BINARY,
                   "--pairs", "8b+1b", "--links", "pcie", "--acceptance", "0.8", "--first", "1", "-n", "96"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split("\t") for line in out.read_text().splitlines() if not line.startswith("#")]
        gains = {row[2]: float(row[7]) for row in rows[1:]}
        self.assertGreater(gains["PEARL"], 1.2)
        self.assertGreater(gains["FOLD, two batches"], gains["PEARL"])
        self.assertGreater(gains["AdaDecode"], 1.0)

    @needs_demo_model
    def test_counts_of_targets_that_draft_for_themselves(self):
        costs, out = self.folder / "costs.tsv", self.folder / "counts.tsv"
        name = f"{Path(demo_model()).stem}:auto"
        rows = [("hop", "-", 0, 1, 0), ("layers", name, 1, 1, 256), ("layers", name, 30, 1, 256),
                ("layers", name, 30, 32, 256), ("head", name, 0, 1, 0)]
        costs.write_text("stage\tfingerprint\tlayers\trows\tcontext\tthreads\tneighbours\tseconds\n" + "".join(
            "\t".join(map(str, row)) + f"\t{int(row[0] != 'hop')}\t0\t0.001\n" for row in rows))
        command = [str(ROOT / "bench/self_speculation.py"), "counts", "--quick", "-n", "8", "--costs", str(costs),
                   "--out", str(out), "--paceline", BINARY, "--model", demo_model()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split("\t") for line in out.read_text().splitlines()]
        found = [dict(zip(lines[0], line)) for line in lines[1:]]
        self.assertEqual([row["method"] for row in found], ["layerskip", "adaspeed", "swift", "clasp"])
        for row in found:
            self.assertEqual(row["equal"], "yes", row)
            self.assertGreaterEqual(float(row["M"]), 1.0, row)
            self.assertGreater(float(row["layer_rows_per_token"]), 15.0, row)

    def test_speed_ups_of_papers_that_draft_without_a_second_model(self):
        out = self.folder / "accounting.tsv"
        command = [str(ROOT / "bench/self_speculation_accounting.py"), "--out", str(out), "--paceline", BINARY,
                   "--rows-max", "2", "--right", "0.8", "-n", "3000"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split("\t") for line in out.read_text().splitlines() if not line.startswith("#")]
        rows = [dict(zip(lines[0], line)) for line in lines[1:]]
        self.assertEqual({row["paper"] for row in rows}, {"SWIFT", "CLaSp", "AdaSPEED"})
        for row in rows:
            if row["over"] != "plain":
                continue
            self.assertLess(abs(float(row["M_simulated"]) / float(row["M"]) - 1), 0.12, row)
            self.assertLess(abs(float(row["alpha_simulated"]) - float(row["alpha"])), 0.04, row)
            # CLaSp's programme takes up to 5 % of the time, which the formula does not have.
            self.assertLess(abs(float(row["simulated"]) / float(row["formula"]) - 1), 0.1, row)

    def test_try_lets_the_program_choose_and_compares_with_the_same_settings_unless_a_method_is_named(self):
        # The script beside stand-ins for all that it calls; the program prints what it is given.
        script = self.folder / "launch" / "try"
        program = self.folder / "build" / "release" / "paceline"
        for path, text in ((script, (ROOT / "launch" / "try").read_text()), (program, '#!/bin/sh\necho "$@"\n'),
                           (script.with_name("setup"), "#!/bin/sh\n"), (script.with_name("build"), "#!/bin/sh\n"),
                           (script.with_name("fetch_model"), "#!/bin/sh\necho demo.gguf\n"),
                           (script.with_name("compare"), '#!/bin/sh\necho "compare $@"\n')):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

        def given(*args: str) -> str:
            return subprocess.run([str(script), *args], capture_output=True, text=True, check=True).stdout.strip()

        self.assertEqual(given("a b"), "run -m demo.gguf -p a b -n 256\n\n"
                                       "compare -m demo.gguf a b")
        for setting in ("-n 3", "--dtype bf16 --temp 0.8 -s 7"):
            words = setting.split()
            self.assertTrue(given("a", *words).endswith(f"{setting}\n\ncompare -m demo.gguf a {setting}"), setting)
        for other in (["--method", "plain"], ["--method=plain"], ["--config", "x.toml"], ["--interactive"],
                      ["--print-config"], ["--stats", "f"]):
            self.assertEqual(given("a", *other), "run -m demo.gguf -p a -n 256 " + " ".join(other))

    def test_build_leaves_cuda_out_of_the_program_unless_it_is_asked_for(self):
        # The script beside a stand-in for cmake that writes what it is given into the build folder's cache.
        script, tools = self.folder / "launch" / "build", self.folder / "bin"
        cache = self.folder / "build/release/CMakeCache.txt"
        fake = """#!/bin/sh
case "$1" in
    --preset)
        mkdir -p build/release
        : > build/release/build.ninja
        for word in "$@"; do case "$word" in -D*) echo "$word" | sed 's/-D//; s/=/:BOOL=/' ;; esac; done \\
            > build/release/CMakeCache.txt
        echo "-- CUDA: $NVCC" ;;
    --build) echo "ninja: no work to do." ;;
esac
"""
        for path, text in ((script, (ROOT / "launch" / "build").read_text()), (tools / "cmake", fake)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

        def built(*args: str, nvcc: str = "13.0") -> tuple[int, str, str]:
            done = subprocess.run([str(script), *args], capture_output=True, text=True, check=False,
                                  env=environment(PATH=f"{tools}:{os.environ['PATH']}", NVCC=nvcc))
            return done.returncode, done.stderr, cache.read_text() if cache.exists() else ""

        has_gpu = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
        alone = built("paceline")[2]
        self.assertIn("PACELINE_TESTS:BOOL=OFF", alone)
        self.assertIn(f"PACELINE_CUDA:BOOL={'ON' if has_gpu else 'OFF'}", alone)
        self.assertIn("PACELINE_CUDA:BOOL=ON", built("--cuda", "paceline")[2])
        self.assertIn("PACELINE_CUDA:BOOL=ON", built("paceline")[2])  # it is there already: nothing is configured
        everything = built("--tests")[2]
        self.assertIn("PACELINE_TESTS:BOOL=ON", everything)
        self.assertIn("PACELINE_CUDA:BOOL=ON", everything)
        cache.unlink()
        cache.with_name("build.ninja").unlink()
        code, text, left = built("--cuda", "paceline", nvcc="no nvcc found")
        self.assertEqual((code, left), (1, ""))
        self.assertIn("nvcc is not in PATH", text)
        self.assertEqual(built("--fast")[0], 2)

    @needs_demo_model
    def test_compare_says_how_a_method_stands_to_plain_decoding(self):
        done = self.script("compare", "-m", demo_model(), "Name three colours.", "-n", "12", "--pairs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\Aplain decoding: \d+ tokens/s\n"
                                      r"\S+: \d+ tokens/s, \d+\.\d\d times plain decoding "
                                      r"\(median of 2 pairs, \d+\.\d\d to \d+\.\d\d\)\n(no clear difference: .*\n)?\Z")
        self.assertIn("no.gguf", self.script("compare", "-m", "/no.gguf", "x").stderr)

    def test_every_script_is_executable(self):
        for name in ("launch/try", "launch/compare", "launch/setup", "launch/build", "launch/fetch_model", "tests/run", "tests/lint",
                     ".ci/run"):
            self.assertTrue(os.access(ROOT / name, os.X_OK), name)


if __name__ == "__main__":
    unittest.main()
