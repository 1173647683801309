"""Runs on several machines that are refused, within 15 s and with machine and value; and the starters."""

import socket
import subprocess
import time
import unittest
from pathlib import Path

from cluster_fixture import ALL_AWAY, Cluster, DRAFT_AWAY, SEGMENT_AWAY
from deeper_model import write_deeper
from paceline_cli import BINARY, PROMPT, TINY, environment, paceline


class Refused(Cluster):
    """With machine and value; the conductor waits for 14 s, which its message says."""

    ARGS = ["-p", PROMPT, "-n", "4"]

    def refuse(self, config: str, *args: str, code: int = 1, words: tuple[str, ...] = ()) -> str:
        done = subprocess.run(self.conductor(config, *args, *self.ARGS), capture_output=True, timeout=60,
                              env=environment(), check=False)
        error = done.stderr.decode()
        self.assertEqual(done.returncode, code, error)
        for word in words:
            self.assertIn(word, error)
        return error

    def test_no_agent_at_the_meeting_place(self):
        self.refuse(self.config(DRAFT_AWAY), words=("0 of 1 other machines are there after 14 s", f"127.0.0.1:{self.port}"))

    def test_another_key(self):
        other = self.folder / "other.key"
        self.assertEqual(paceline("agent", "--new-key", str(other)).returncode, 0)
        agent = self.agent(key=other)
        self.refuse(self.config(DRAFT_AWAY), words=("0 of 1 other machines are there", "key"))
        self.assertEqual(agent.wait(60), 1)
        self.assertIn(b"key", agent.stderr.read())

    def test_a_key_that_others_may_read(self):
        self.key.chmod(0o644)
        self.refuse(self.config(DRAFT_AWAY), words=(str(self.key), "0600"))

    def test_no_key(self):
        done = paceline("run", "-m", self.model, "--config", self.config(DRAFT_AWAY), "--node", "0/2", "--meet",
                        f"127.0.0.1:{self.port}", *self.ARGS)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"several machines need a key", done.stderr)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", self.port)):
            self.refuse(self.config(DRAFT_AWAY), code=2, words=(f"127.0.0.1:{self.port}",))

    def test_two_tasks_on_a_machine(self):
        first = self.agent()
        second = self.agent()
        done = subprocess.run(self.conductor(self.config(DRAFT_AWAY), *self.ARGS, machines=3), capture_output=True,
                              timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"1 of 2 other machines are there", done.stderr)
        self.assertIn(b"machine 'b' has an agent already: two tasks on one machine", done.stderr)
        self.assertEqual({first.wait(60), second.wait(60)}, {0, 1})

    def test_more_machines_than_stages(self):
        agents = [self.agent(name=name) for name in ("b", "c")]
        done = subprocess.run([BINARY, "run", "-m", self.model, "--method", "pearl", "--node", "0/3", "--meet",
                               f"127.0.0.1:{self.port}", "--key", str(self.key), *self.ARGS], capture_output=True,
                              timeout=120, env=environment(), check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"3 machines are more than its 1 segment can use", done.stderr)
        for agent in agents:
            self.assertEqual(agent.wait(60), 0)

    def test_a_node_that_is_not_there(self):
        agent = self.agent(name="x")
        self.refuse(self.config(DRAFT_AWAY), code=2, words=('node = "b" is not there; the other machines are: x',))
        self.assertEqual(agent.wait(60), 0)

    def test_a_model_that_the_agent_does_not_have(self):
        empty = self.folder / "empty"
        empty.mkdir()
        self.agent(models=empty)
        self.refuse(self.config(SEGMENT_AWAY), words=("stage 'second'", "machine 'b'", f"--models {empty}", "deeper.gguf"))

    def test_another_model_of_the_same_name(self):
        models = self.folder / "others"
        models.mkdir()
        other = Path(write_deeper(TINY, models / "deeper.gguf", 4))
        data = bytearray(other.read_bytes())
        data[-100] ^= 1
        other.write_bytes(data)
        self.agent(models=models)
        self.refuse(self.config(SEGMENT_AWAY), code=2, words=("stage second loaded other weights than first",))
        # Segments that are all there agree with each other, but not with the file of this command.
        self.agent(models=models)
        self.refuse(self.config(ALL_AWAY), code=2, words=("loaded another model",))

    def test_strange_bytes_cost_one_connection_and_a_line(self):
        config = self.config(DRAFT_AWAY)
        log = self.folder / "run.log"
        process = subprocess.Popen(self.conductor(config, *self.ARGS, "--log", str(log)), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as strange:
                    strange.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    strange.settimeout(60)
                    while strange.recv(4096):
                        pass
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            except ConnectionResetError:
                break
        self.agent()
        out, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(out, self.plain(*self.ARGS))
        self.assertIn("TLS", log.read_text())

    def test_starters(self):
        for name, variables, word in (
                ("two tasks", {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1",
                               "SLURM_STEP_NODELIST": "a"}, "SLURM_LOCALID is 1"),
                ("mpirun", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
                            "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "PACELINE_MEET"),
                ("two starters", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
                                  "OMPI_COMM_WORLD_LOCAL_RANK": "0", "RANK": "1", "WORLD_SIZE": "2",
                                  "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, "RANK = 1")):
            with self.subTest(name=name):
                done = paceline("agent", "--key", str(self.key), "--models", str(self.models),
                                env={**environment(), **variables})
                self.assertEqual(done.returncode, 2)
                self.assertIn(word, done.stderr.decode())


class Starters(Cluster):
    """launch/paceline-launch finds its place in the environment of each starter."""

    def test_each_starter_starts_the_same_run(self):
        launch = str(Path(__file__).resolve().parent.parent.parent / "launch" / "paceline-launch")
        args = ["-p", PROMPT, "-n", "20"]
        plain = self.plain(*args)
        meet = f"127.0.0.1:{self.port}"
        starters = {
            "srun": ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "x",
                      "PACELINE_MEET": meet}, "SLURM_PROCID"),
            "mpirun": ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PACELINE_MEET": meet},
                       "OMPI_COMM_WORLD_RANK"),
            "torchrun": ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                          "MASTER_PORT": "1", "PACELINE_MEET": meet}, "RANK"),
        }
        for name, (variables, rank) in starters.items():
            with self.subTest(starter=name):
                tasks = [subprocess.Popen(
                    [launch, "pearl", "-m", self.model, *args, "--node-name", f"m{number}"], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**environment(), **variables, rank: str(number), "PACELINE_BINARY": BINARY,
                         "PACELINE_KEY": self.key.read_text().strip()}) for number in (1, 0)]
                outputs = [task.communicate(timeout=120) for task in tasks]
                self.assertEqual([task.returncode for task in tasks], [0, 0], outputs)
                self.assertEqual(outputs[1][0], plain)


if __name__ == "__main__":
    unittest.main()
