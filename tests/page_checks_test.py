#!/usr/bin/env python3
"""Tests of page_checks.py on a small tree. Python's standard library only."""

import tempfile
import unittest
from pathlib import Path

from page_checks import check_pages

SOURCE = """#pragma once
constexpr int kLimit = 3;
struct Walk {
    int wanted() const;
};
void Other::feed(int row) { use(row); }
"""


class PageChecks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        for name in ("actors/deep", "docs"):
            (self.root / name).mkdir(parents=True)
        (self.root / "actors/deep/walk.hpp").write_text(SOURCE)

    def tearDown(self):
        self.folder.cleanup()

    def findings(self, text):
        page = self.root / "docs/page.md"
        page.write_text(text)
        return check_pages(self.root, [page, self.root / "actors/deep/walk.hpp"])

    def test_files_folders_stems_and_functions_that_exist_are_accepted(self):
        for text in ("`actors/deep/walk.hpp`", "`actors/deep/`", "`actors/deep`", "`actors/deep/walk`",
                     "`actors/deep/walk.hpp:Walk::wanted`", "`actors/deep/walk:Walk`",
                     "`actors/deep/walk.hpp:Other::feed`", "`actors/deep/walk.hpp:kLimit`",
                     "ends with actors/deep/walk.hpp.", "[page](page.md)", "[out](https://host/x.md)"):
            self.assertEqual(self.findings(text), [], text)

    def test_a_missing_file_is_found_with_page_and_line(self):
        self.assertEqual(self.findings("first\nsee actors/deep/gone.cpp, please"),
                         ["docs/page.md:2: actors/deep/gone.cpp does not exist"])

    def test_a_missing_function_is_found(self):
        for name in ("actors/deep/walk.hpp:gone", "actors/deep/walk:Walk::gone",
                     "actors/deep/walk.hpp:Nobody::wanted", "actors/deep/walk.hpp:use_it",
                     "actors/deep/walk.hpp:row"):
            self.assertEqual(len(self.findings(f"`{name}`")), 1, name)

    def test_a_function_of_a_folder_is_found(self):
        self.assertEqual(len(self.findings("`actors/deep:feed`")), 1)

    def test_a_missing_link_is_found(self):
        self.assertEqual(self.findings("![plot](pictures/gone.svg)"),
                         ["docs/page.md:1: pictures/gone.svg does not exist beside the page"])

    def test_a_section_of_another_page_that_does_not_exist_is_found(self):
        (self.root / "docs/other.md").write_text("# Other\n\n## The right one\n")
        for text in ('`other.md`, "The right one"', '(`docs/other.md`,\n"The right\none")'):
            self.assertEqual(self.findings(text), [], text)
        self.assertEqual(self.findings('first\n`other.md`, "The wrong one"'),
                         ['docs/page.md:2: other.md has no section "The wrong one"'])
        self.assertEqual(len(self.findings('`gone.md`, "The right one"')), 1)

    def test_a_block_that_shows_a_file_equals_it(self):
        shown = f"```cpp actors/deep/walk.hpp\n{SOURCE}```\n"
        self.assertEqual(self.findings(shown), [])
        self.assertEqual(self.findings("\n" + shown.replace("= 3", "= 4")),
                         ["docs/page.md:2: the block differs from actors/deep/walk.hpp"])
        self.assertEqual(len(self.findings(shown.replace("walk.hpp\n", "gone.hpp\n"))), 2)

    def test_a_method_without_a_section_and_a_section_without_a_method_are_found(self):
        (self.root / "configs").mkdir()
        for name in ("pearl", "fold", "cpu-one"):
            (self.root / f"configs/{name}.toml").touch()
        (self.root / "docs/methods.md").write_text("### pearl\n### gone\n")
        self.assertEqual(self.findings(""), ["docs/methods.md:1: no section '### fold'",
                                             "docs/methods.md:1: '### gone' is not a method"])

    def test_data_without_conditions_with_ragged_rows_or_without_a_name_are_found(self):
        folder = self.root / "bench/results"
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("`good.tsv`")
        good = "# command: c\n# commit: a\n# date: d\n# machine: m\nx\ty\n1\t2\n"
        (folder / "good.tsv").write_text(good)
        self.assertEqual(self.findings(""), [])
        (folder / "bad.tsv").write_text(good.replace("# date: d\n", "").replace("\t2", ""))
        self.assertEqual(self.findings(""), ["bench/results/bad.tsv:1: no line '# date: ...'",
                                             "bench/results/bad.tsv:1: rows of different length",
                                             "bench/results/README.md:1: does not name bad.tsv"])

    def chart_findings(self, page_text, charts, script=""):
        """The findings of a page beside charts {name below docs/: text}."""
        files = []
        for name, text in {"page.md": page_text, **charts}.items():
            files.append(self.root / "docs" / name)
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_text(text)
        if script:
            (self.root / "bench").mkdir()
            (self.root / "bench/charts.py").write_text(script)
        return check_pages(self.root, files)

    def test_a_chart_that_no_page_shows_is_found(self):
        charts = {"pictures/shown.svg": "<svg/>", "pictures/lost.svg": "<svg/>"}
        self.assertEqual(self.chart_findings("![one](pictures/shown.svg)", charts),
                         ["docs/pictures/lost.svg:1: no page shows this chart"])

    def test_a_chart_outside_of_the_folder_of_charts_is_found(self):
        self.assertEqual(self.chart_findings("![one](loose.svg)", {"loose.svg": "<svg/>"}),
                         ["docs/loose.svg:1: a chart lies in docs/pictures (bench/charts.py)"])

    def test_findings_and_failures_of_the_command_that_draws_charts_are_reported(self):
        shown = ("![one](pictures/one.svg)", {"pictures/one.svg": "<svg/>"})
        differs = "import sys\nprint('one.svg:1: differs')\nsys.exit(1)\n"
        self.assertEqual(self.chart_findings(*shown, differs), ["one.svg:1: differs"])
        (self.root / "bench/charts.py").write_text("raise SystemExit('no table')")
        self.assertEqual(self.chart_findings(*shown),
                         ["bench/charts.py:1: --check failed: no table"])

    def test_words_outside_of_the_tree_are_no_references(self):
        for text in ("build/release/paceline", "/proc/self/exe", "input/output", "`actors/*.hpp`",
                     "~/actors/deep/gone"):
            self.assertEqual(self.findings(text), [], text)


if __name__ == "__main__":
    unittest.main()
