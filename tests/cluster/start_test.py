"""One run, started by hand, by Open MPI, by Slurm and by torchrun; and what is refused before it begins."""

import signal
import subprocess
import sys
from pathlib import Path

import starters
from cluster_case import BINARY, DRAWN, GREEDY, LONG, SHORT, ClusterCase, draft_away, main, needs, segments, until
from paceline_cli import environment

TWO = {"draft": draft_away(), "segment": segments("", "b"), "all": segments("b", "b").replace(
    'role = "draft"\n', 'role = "draft"\nnode = "b"\n')}


class Starts(ClusterCase):
    def test_by_hand_the_answer_is_that_of_one_process(self):
        for name, text in TWO.items():
            for sampling in (GREEDY, DRAWN):
                with self.subTest(away=name, sampling=sampling):
                    args = [*SHORT, *sampling]
                    self.check_same(self.by_hand(self.config(text), *args), *args)

    def test_three_machines_in_a_row(self):
        config = self.config(segments("", "b", "c"))
        self.check_same(self.by_hand(config, *SHORT, hosts="abc"), *SHORT)

    def test_a_method_without_nodes_is_shared_out(self):
        self.check_same(self.by_hand("pearl", *SHORT), *SHORT)

    @needs("mpirun")
    def test_open_mpi_starts_the_same_run(self):
        for hosts, text in (("ab", segments("", "b")), ("abc", segments("", "b", "c"))):
            with self.subTest(hosts=hosts):
                job = starters.by_mpirun(self.network, list(hosts), self.words(self.config(text), *SHORT),
                                         folder=self.folder, environment=self.environment_of_tasks())
                self.addCleanup(job.close)
                self.check_same(job, *SHORT)

    @needs("srun")
    def test_slurm_starts_the_same_run(self):
        with starters.Slurm(self.network, ["a", "b"], self.folder) as slurm:
            job = starters.by_srun(self.network, ["a", "b"], self.words(self.config(segments("", "b")), *SHORT),
                                   slurm=slurm, environment=self.environment)
            self.addCleanup(job.close)
            self.assertEqual(job.wait(120), 0, job.err)
            self.assertEqual(job.out, self.plain(*SHORT), job.err)
        self.check_nothing_left()

    @needs("torchrun")
    def test_torchrun_starts_the_same_run(self):
        job = starters.by_torchrun(self.network, ["a", "b"], self.words(self.config(segments("", "b")), *SHORT),
                                   environment=self.environment)
        self.addCleanup(job.close)
        self.check_same(job, *SHORT)

    def test_the_key_may_come_from_the_environment(self):
        words = [word for word in self.words(self.config(segments("", "b")), *SHORT) if word not in ("--key", self.key)]
        variables = {**self.environment, "PACELINE_KEY": Path(self.key).read_text().strip()}
        job = starters.by_hand(self.network, ["a", "b"], words, environment=variables)
        self.addCleanup(job.close)
        self.check_same(job, *SHORT)

    def test_sigterm_to_the_conductor_ends_all_machines(self):
        job = self.by_hand(self.config(segments("", "b")), *LONG)
        self.assertTrue(job.wait_for_text(1), job.err)
        job.first.send_signal(signal.SIGTERM)
        job.wait(30)
        self.assertTrue(self.plain(*LONG).startswith(job.out.rstrip(b"\n")), job.out)
        self.check_nothing_left()

    @needs("mpirun")
    def test_sigusr1_to_mpirun_drains_the_run(self):
        job = starters.by_mpirun(self.network, ["a", "b"], self.words(self.config(segments("", "b")), *LONG),
                                 folder=self.folder, environment=self.environment_of_tasks())
        self.addCleanup(job.close)
        self.assertTrue(job.wait_for_text(1), job.err)
        job.first.send_signal(signal.SIGUSR1)
        job.wait(60)
        self.assertTrue(self.plain(*LONG).startswith(job.out.rstrip(b"\n")), job.out)
        self.check_nothing_left()


class Refusals(ClusterCase):
    def refused_by_hand(self, *texts: str, config: str | None = None, hosts: str = "ab", args: tuple = ()) -> None:
        self.check_refused(self.by_hand(config or self.config(segments("", "b")), *SHORT, *args, hosts=hosts), *texts)

    def test_another_key(self):
        other = self.new_key("other.key")
        job = starters.Job([
            starters.start(self.network, "a", [*self.words(self.config(segments("", "b")), *SHORT), "--node", "0/2",
                                               "--meet", "a:47600"], self.environment),
            starters.start(self.network, "b", [*self.words(self.config(segments("", "b")), *SHORT, key=other), "--node",
                                               "1/2", "--meet", "a:47600"], self.environment)])
        self.addCleanup(job.close)
        self.check_refused(job, "another key", self.network.address("b"))

    def test_no_key(self):
        words = [word for word in self.words(self.config(segments("", "b")), *SHORT) if word not in ("--key", self.key)]
        job = starters.by_hand(self.network, ["a", "b"], words, environment=self.environment)
        self.addCleanup(job.close)
        self.check_refused(job, "--key", "PACELINE_KEY")

    def test_a_key_file_that_others_may_read(self):
        subprocess.run(["chmod", "0644", self.key], check=True)
        self.refused_by_hand("cluster.key", "0644")

    def conductor(self, *args: str) -> starters.Job:
        words = [*self.words(self.config(segments("", "b")), *SHORT, *args), "--node", "0/2", "--meet", "a:47600"]
        job = starters.Job([starters.start(self.network, "a", words, self.environment)])
        self.addCleanup(job.close)
        return job

    def test_no_agent_at_the_meeting_place(self):
        self.check_refused(self.conductor(), "machine")
        self.check_refused(self.agent("b"), "a:47600")

    def test_a_port_that_is_taken(self):
        listener = ('import socket, time\ns = socket.create_server(("0.0.0.0", 47600))\n'
                    'print("ready", flush=True)\ntime.sleep(600)\n')
        blocker = self.network.start("a", [sys.executable, "-c", listener], stdout=subprocess.PIPE)
        self.addCleanup(blocker.stdout.close)
        self.addCleanup(blocker.wait)
        self.addCleanup(blocker.kill)
        blocker.stdout.readline()
        job = self.conductor()
        self.assertNotEqual(job.wait(15), 0)
        self.assertIn("47600", job.err)
        self.assertIn("taken", job.err)

    def test_a_node_that_is_not_there(self):
        self.refused_by_hand('"?z"?', config=self.config(segments("", "z")))

    def test_more_machines_than_segments(self):
        self.refused_by_hand("machine", config="pearl", hosts="abc")

    def test_several_machines_for_plain_decoding(self):
        self.refused_by_hand("machine|node", config="plain")

    def test_another_model(self):
        # The agent's folder has another file of this name.
        other = self.folder / "elsewhere"
        other.mkdir()
        data = bytearray(Path(self.model).read_bytes())
        data[-1] ^= 1
        (other / "deeper.gguf").write_bytes(data)
        job = starters.Job([
            starters.start(self.network, "a", [*self.words(self.config(segments("", "b")), *SHORT), "--node", "0/2",
                                               "--meet", "a:47600"], self.environment),
            starters.start(self.network, "b", [self.binary, "agent", "--meet", "a:47600", "--key", self.key, "--models",
                                               str(other)], self.environment)])
        self.addCleanup(job.close)
        self.check_refused(job, "segment-2 loaded other weights")

    @needs("mpirun")
    def test_two_tasks_on_a_machine(self):
        job = starters.by_mpirun(self.network, ["a", "b"], self.words(self.config(segments("", "b")), *SHORT),
                                 folder=self.folder, each=2, environment={"PACELINE_BINARY": self.binary})
        self.addCleanup(job.close)
        self.assertNotEqual(job.wait(30), 0)
        self.assertIn("OMPI_COMM_WORLD_LOCAL_RANK", job.err + job.out.decode(errors="replace"))
        self.check_nothing_left()

    @needs("mpirun")
    def test_open_mpi_without_a_place_to_meet(self):
        job = starters.by_mpirun(self.network, ["a", "b"], self.words(self.config(segments("", "b")), *SHORT),
                                 folder=self.folder, meet=None, environment={"PACELINE_BINARY": self.binary})
        self.addCleanup(job.close)
        self.assertNotEqual(job.wait(30), 0)
        self.assertIn("PACELINE_MEET", job.err + job.out.decode(errors="replace"))
        self.check_nothing_left()

    def test_two_starters_at_once(self):
        variables = {**self.environment, "TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                     "MASTER_ADDR": "a", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2",
                     "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PACELINE_MEET": "a:47600"}
        job = starters.Job([starters.start(self.network, "a", self.words(self.config(segments("", "b")), *SHORT), variables)])
        self.addCleanup(job.close)
        self.check_refused(job, "RANK")

    def test_strange_bytes_cost_one_connection_and_the_run_goes_on(self):
        stranger = ('import socket, sys, time\n'
                    'for _ in range(200):\n'
                    '    try: s = socket.create_connection(("a", 47600), timeout=1)\n'
                    '    except OSError: time.sleep(0.05); continue\n'
                    '    s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")\n'
                    '    s.settimeout(5)\n'
                    '    while s.recv(100): pass\n'
                    '    break\n'
                    'else: sys.exit(1)\n')
        job = self.conductor("-v")
        self.network.run("c", [sys.executable, "-c", stranger], check=True, timeout=30)
        until(lambda: self.network.address("c") in job.err, 10, "a line about the stranger")
        agent = self.agent("b")
        self.assertEqual(job.wait(60), 0, job.err)
        self.assertEqual(job.out, self.plain(*SHORT))
        self.assertEqual(agent.wait(30), 0, agent.err)
        self.assertEqual(sum(self.network.address("c") in line for line in job.err.splitlines()), 1, job.err)

    def test_an_agent_alone_says_what_it_lacks(self):
        done = subprocess.run([BINARY, "agent", "--key", self.key], capture_output=True, text=True, check=False,
                              env=environment())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--models", done.stderr)


if __name__ == "__main__":
    main()
