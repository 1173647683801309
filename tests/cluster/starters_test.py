"""Open MPI, Slurm and torchrun on the hosts of these tests, without Paceline: one task a host, and what each is told."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import starters
from namespaces import Network, why_not

# Each task adds what it was told to a file of its host.
TASK = """
import json, os, socket, sys
names = ["SLURM_PROCID", "SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "RANK",
         "MASTER_ADDR", "PACELINE_MEET", "PACELINE_WORD"]
told = {name: os.environ[name] for name in names if name in os.environ}
with open(os.path.join(sys.argv[1], socket.gethostname()), "a") as file:
    file.write(json.dumps({"arguments": sys.argv[2:], **told}) + "\\n")
print("from", socket.gethostname(), flush=True)
"""


@unittest.skipIf(why_not(), f"skipped: {why_not()}")
class Starters(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.told = self.folder / "told"
        self.told.mkdir()
        (self.folder / "task.py").write_text(TASK)
        self.words = [sys.executable, str(self.folder / "task.py"), str(self.told)]
        self.network = Network(["a", "b", "c"], self.folder)
        self.addCleanup(self.network.remove)
        self.network.__enter__()

    def need(self, starter: str) -> None:
        if why := starters.missing(starter):
            self.skipTest(f"skipped: {why}")

    def finish(self, job: starters.Job) -> dict[str, list[dict]]:
        self.addCleanup(job.close)
        self.assertEqual(job.wait(60), 0, job.err)
        return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in self.told.iterdir()}

    def ranks(self, told: dict[str, list[dict]], name: str) -> dict[str, list[str]]:
        return {host: sorted(task[name] for task in tasks) for host, tasks in told.items()}

    def test_by_hand_each_host_is_told_its_number_and_the_first_ones_place(self):
        told = self.finish(starters.by_hand(self.network, ["b", "c"], self.words))
        self.assertEqual(told["b"][0]["arguments"], ["--node", "0/2", "--meet", "b:47600"])
        self.assertEqual(told["c"][0]["arguments"], ["--node", "1/2", "--meet", "b:47600"])

    def test_mpirun_starts_one_task_on_each_host(self):
        self.need("mpirun")
        job = starters.by_mpirun(self.network, ["a", "b", "c"], self.words, folder=self.folder,
                                 environment={"PACELINE_WORD": "passed on"})
        told = self.finish(job)
        self.assertEqual(self.ranks(told, "OMPI_COMM_WORLD_RANK"), {"a": ["0"], "b": ["1"], "c": ["2"]})
        self.assertEqual({task[0]["PACELINE_MEET"] for task in told.values()}, {"a:47600"})
        self.assertEqual({task[0]["PACELINE_WORD"] for task in told.values()}, {"passed on"})
        self.assertIn(b"from c", job.out)

    def test_mpirun_can_start_two_tasks_on_a_host(self):
        self.need("mpirun")
        told = self.finish(starters.by_mpirun(self.network, ["a", "b"], self.words, folder=self.folder, each=2))
        self.assertEqual(self.ranks(told, "OMPI_COMM_WORLD_LOCAL_RANK"), {"a": ["0", "1"], "b": ["0", "1"]})

    def test_srun_starts_one_task_on_each_host(self):
        self.need("srun")
        with starters.Slurm(self.network, ["a", "b", "c"], self.folder) as slurm:
            job = starters.by_srun(self.network, ["a", "b"], self.words, slurm=slurm,
                                   environment={"PACELINE_WORD": "passed on"})
            told = self.finish(job)
            self.assertEqual(self.ranks(told, "SLURM_PROCID"), {"a": ["0"], "b": ["1"]})
            self.assertIn(told["b"][0]["SLURM_STEP_NODELIST"], ("a,b", "[a-b]"))
            self.assertEqual(told["b"][0]["PACELINE_WORD"], "passed on")
            self.assertIn(b"from b", job.out)

    def test_torchrun_starts_one_task_on_each_host(self):
        self.need("torchrun")
        told = self.finish(starters.by_torchrun(self.network, ["a", "b"], self.words))
        self.assertEqual(self.ranks(told, "RANK"), {"a": ["0"], "b": ["1"]})
        self.assertEqual({task[0]["MASTER_ADDR"] for task in told.values()}, {"a"})


if __name__ == "__main__":
    unittest.main()
