"""The installed program and the Debian package: what they hold, and that they need no checkout."""

import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from paceline_cli import BINARY, CliTest, PROMPT, ROOT, TINY, environment

BUILD = Path(BINARY).parent
FILES = ["bin/paceline", "bin/paceline-launch", "share/paceline/configs/fold.toml", "share/paceline/configs/machines/1-h200.toml",
         "share/paceline/pretrained/smollm2-135m-instruct/draft-deep.safetensors", "share/doc/paceline/README.md",
         "share/doc/paceline/docs/methods.md", "share/bash-completion/completions/paceline", "share/man/man1/paceline.1",
         "lib/systemd/system/paceline.service"]


class Install(CliTest):
    def installed(self) -> Path:
        prefix = self.folder / "usr"
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], capture_output=True, check=True)
        return prefix

    def test_the_installed_program_decodes_and_completes_without_the_checkout(self):
        prefix = self.installed()
        for name in FILES:
            self.assertTrue((prefix / name).is_file(), name)
        program = str(prefix / "bin/paceline")
        wanted = subprocess.run([BINARY, "run", "-m", TINY, "-p", PROMPT, "-n", "8"], capture_output=True, check=True)
        # Elsewhere, with nothing of the checkout in sight but the model.
        model = shutil.copy(TINY, self.folder / "model.gguf")
        for method in ("plain", "prompt-lookup"):
            done = subprocess.run([program, "run", "-m", model, "-p", PROMPT, "-n", "8", "--method", method],
                                  capture_output=True, cwd=self.folder, env=environment(), check=False)
            self.assertEqual((done.returncode, done.stdout), (0, wanted.stdout), done.stderr.decode())
        launched = subprocess.run([str(prefix / "bin/paceline-launch"), "fold", "--dry-run", "--machine",
                                   str(prefix / "share/paceline/configs/machines/4-a100.toml"), "--random", "llama-8b",
                                   "--draft-model", "llama-1b"], capture_output=True, text=True, check=False)
        self.assertTrue("cuda:3" in launched.stdout or "built without CUDA" in launched.stderr, launched.stderr)

        def completed(*words: str) -> list[str]:
            script = (f"source {prefix / 'share/bash-completion/completions/paceline'}; COMP_WORDS=({program} "
                      f"{' '.join(words)}); COMP_CWORD={len(words)}; _paceline {program}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            return done.stdout.split()

        self.assertEqual(completed("si"), ["simulate"])
        self.assertEqual(completed("run", "--method", "four"), ["four-stages"])
        self.assertIn("--list-methods", completed("run", "--list"))
        self.assertEqual(completed("serve", "--api"), ["--api-key-file"])
        self.assertEqual(sorted(completed("serve", "--method", "au")), ["auto", "autoregressive", "autoregressive-segments"])

    def test_the_manual_page_names_the_commands_that_there_are(self):
        page = (ROOT / "launch/package/paceline.1").read_text()
        section = page[page.index(".SH COMMANDS"):page.index(".PP")]
        told = re.findall(r"\.TP\n\.B (\S+)\n(.*)\n", section)
        lines = self.run_ok("--help").split("Subcommands:\n")[1].split("\n\n")[0].splitlines()
        self.assertEqual([(name, text) for name, text in told], [tuple(line.split(maxsplit=1)) for line in lines])

    def test_the_manual_page_names_the_options_of_the_server(self):
        def options(command: str) -> set[str]:
            text = self.run_ok(command, "--help")
            return set(re.findall(r"^ +(?:-\w, ?)?(--[\w-]+)", text, re.MULTILINE))

        page = (ROOT / "launch/package/paceline.1").read_text()
        section = page[page.index(".SH SERVER"):page.index(".SH EXIT STATUS")]
        told = {word.replace("\\", "") for word in re.findall(r"^\.B[R]? (\S*\\-\\-[\w\\-]+)", section, re.MULTILINE)}
        self.assertEqual(told - options("serve"), set())
        self.assertEqual(options("serve") - options("run") - told, set())

    @unittest.skipUnless(shutil.which("dpkg-deb"), "skipped: dpkg-deb is not here")
    def test_the_debian_package_holds_the_same_and_names_what_it_needs(self):
        subprocess.run(["cpack", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(self.folder)], cwd=self.folder,
                       capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"})
        package, = self.folder.glob("paceline_*.deb")
        held = subprocess.run(["dpkg-deb", "-c", str(package)], capture_output=True, text=True, check=True).stdout
        for name in FILES:
            self.assertIn(f"./usr/{name}", held)
        needs = subprocess.run(["dpkg-deb", "-f", str(package), "Depends"], capture_output=True, text=True, check=True)
        for library in ("libc6", "libspdlog", "libedit2"):
            self.assertIn(library, needs.stdout)


if __name__ == "__main__":
    unittest.main()
