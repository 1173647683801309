"""Names of files and runs can break neither the table of a model card nor a picture of curves."""

import argparse
import tempfile
import unittest
from pathlib import Path
from xml.dom import minidom

from paceline_training import plot
from paceline_training.card import cell


class Names(unittest.TestCase):
    def test_a_cell_of_a_table_stays_one(self):
        self.assertEqual(cell("draft-small.safetensors"), "draft-small.safetensors")
        self.assertEqual(cell("a|b\n\x1b[2J"), "a\\|b??\\[2J")
        self.assertEqual(cell("<b> `c` *d* \\"), "\\<b> \\`c\\` \\*d\\* \\\\")

    def test_a_run_may_have_any_name(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "rate $2^$ <a> & b"
            folder.mkdir()
            (folder / "losses.tsv").write_text("step\ttokens\tminutes\tmeasure\tvalue\n1\t9\t1\tloss\t2.5\n")
            out = Path(name) / "curves.svg"
            parser = argparse.ArgumentParser()
            plot.add_arguments(parser)
            plot.run(parser.parse_args([str(folder), "-o", str(out), "--measure", "loss"]))
            minidom.parse(str(out))
            self.assertIn("$2^$", out.read_text(encoding="utf-8").replace("&lt;", "<"))


if __name__ == "__main__":
    unittest.main()
