"""Machines, links and processes that fail in mid-answer: the same bytes, or an end with its story; nothing is left.

The lease of a machine is 5 s: a cut that is longer ends its stages, and the run goes on when it is back.
"""

import contextlib
import os
import signal
import time
import unittest

from cluster_case import (DRAWN, EMULATED, GREEDY, LONG, ClusterCase, draft_away, main, segments, stages_on, until)
from namespaces import Way, Wire

LEASE_LIMIT = 20.0  # s: the lease, its margin, and what a loaded machine adds


class Faults(ClusterCase):
    """Each test body is called with a run that has begun to answer, greedy and drawn."""

    # 5 ms a way: an answer of some hundred tokens takes seconds, so a fault meets it in the middle.
    wires = {"b": Wire(delay_ms=5)}

    def in_mid_answer(self, text: str, fault, hosts: str = "ab", supervision: str | None = None) -> None:
        for sampling in (GREEDY, DRAWN):
            with self.subTest(sampling=sampling):
                args = [*LONG, *sampling]
                options = {} if supervision is None else {"supervision": supervision}
                job = self.by_hand(self.config(text, **options), *args, hosts=hosts)
                self.assertTrue(job.wait_for_text(8), job.err)
                fault(job)
                self.check_same(job, *args)

    def still_running(self, job) -> None:
        self.assertIsNone(job.code, f"the run was over before the fault: {job.err}")

    @contextlib.contextmanager
    def in_the_middle(self, job):
        """The target of the conductor's machine stands still: no link holds up an answer without its draft."""
        stages = stages_on(self.network, "a")
        for pid in stages:
            os.kill(pid, signal.SIGSTOP)
        try:
            self.still_running(job)
            yield
        finally:
            for pid in stages:
                os.kill(pid, signal.SIGCONT)

    # ---- processes ----

    def test_a_stage_of_another_machine_is_killed(self):
        def kill(job):
            for pid in stages_on(self.network, "b"):
                os.kill(pid, signal.SIGKILL)
            self.still_running(job)
        self.in_mid_answer(segments("", "b", device=self.device), kill)

    def test_a_draft_of_another_machine_is_killed(self):
        def kill(job):
            with self.in_the_middle(job):
                for pid in stages_on(self.network, "b"):
                    os.kill(pid, signal.SIGKILL)
        self.in_mid_answer(draft_away(device=self.device), kill)

    def test_a_stage_of_the_conductors_machine_is_killed(self):
        def kill(job):
            os.kill(stages_on(self.network, "a")[-1], signal.SIGKILL)
            self.still_running(job)
        self.in_mid_answer(segments("", "b", device=self.device), kill)

    def kill_agent(self, job) -> None:
        """The agent dies; its stages die with it."""
        os.kill(job.processes[1].pid, signal.SIGKILL)
        until(lambda: not stages_on(self.network, "b"), 10, "stages outlive their agent")
        self.still_running(job)

    def test_an_agent_is_killed_and_another_one_comes_on_its_machine(self):
        def kill(job):
            self.kill_agent(job)
            job.forget(1)
            self.agent("b")
        self.in_mid_answer(segments("", "b", device=self.device), kill)

    def test_an_agent_is_killed_and_a_spare_one_takes_its_place(self):
        def kill(job):
            spare = self.agent("c")
            self.assertTrue(spare.processes)
            self.kill_agent(job)
            job.forget(1)
        self.in_mid_answer(segments("", "b", device=self.device), kill)

    def test_the_agent_of_a_draft_is_killed_and_decoding_goes_on_without_it(self):
        def kill(job):
            with self.in_the_middle(job):
                self.kill_agent(job)
            job.forget(1)
        self.in_mid_answer(draft_away(device=self.device), kill)

    def test_an_agent_is_killed_and_none_comes(self):
        supervision = "[supervision]\nrestarts_max = 20\nbackoff_ms = [0]\nmachine_wait_s = 2\n"
        job = self.by_hand(self.config(segments("", "b", device=self.device), supervision=supervision), *LONG)
        self.assertTrue(job.wait_for_text(8), job.err)
        self.kill_agent(job)
        self.assertNotEqual(job.wait(60), 0)
        self.assertRegex(job.said(0), r"\bb\b")
        self.assertTrue(self.plain(*LONG).startswith(job.out.rstrip(b"\n")), job.out)
        self.check_nothing_left()

    def test_the_conductor_is_killed(self):
        job = self.by_hand(self.config(segments("", "b", device=self.device)), *LONG)
        self.assertTrue(job.wait_for_text(8), job.err)
        job.first.kill()
        until(lambda: not stages_on(self.network, "a"), 10, "stages outlive the conductor on its machine")
        until(lambda: not stages_on(self.network, "b"), LEASE_LIMIT, "stages outlive the conductor elsewhere")
        job.processes[1].terminate()  # it looks for the conductor for a minute
        job.wait(20)
        self.check_nothing_left()

    # ---- links ----

    def cut_for(self, seconds: float, way: Way = Way.BOTH):
        def cut(job):
            self.network.cut("b", way)
            self.still_running(job)
            time.sleep(seconds)
            self.network.heal("b")
        return cut

    def test_a_link_is_cut_for_a_second(self):
        self.in_mid_answer(segments("", "b", device=self.device), self.cut_for(1))

    def test_a_link_is_cut_for_four_seconds(self):
        self.in_mid_answer(segments("", "b", device=self.device), self.cut_for(4))

    def test_a_link_is_cut_for_half_a_minute(self):
        self.in_mid_answer(segments("", "b", device=self.device), self.cut_for(30))

    def test_the_link_of_a_draft_is_cut_and_decoding_goes_on_without_it(self):
        def cut(job):
            with self.in_the_middle(job):
                self.network.cut("b")
            until(lambda: job.code is not None, 60, "the run waits for a draft that is away")
            self.network.heal("b")
            job.processes[1].terminate()  # it looks for the conductor for a minute
        self.in_mid_answer(draft_away(device=self.device), cut)

    def test_a_link_is_cut_until_the_lease_has_ended(self):
        def cut(job):
            self.network.cut("b")
            until(lambda: not stages_on(self.network, "b"), LEASE_LIMIT, "stages outlive the lease")
            self.still_running(job)
            self.network.heal("b")
        self.in_mid_answer(segments("", "b", device=self.device), cut)

    def test_a_link_loses_one_way_alone(self):
        for way in (Way.FROM, Way.TO):
            with self.subTest(way=way):
                def cut(job, way=way):
                    self.network.cut("b", way)
                    until(lambda: not stages_on(self.network, "b"), LEASE_LIMIT, "stages outlive the lease")
                    self.still_running(job)
                    self.network.heal("b")
                self.in_mid_answer(segments("", "b", device=self.device), cut)

    def test_a_link_is_slow(self):
        self.in_mid_answer(segments("", "b", device=self.device), lambda _job: self.network.slow("b", "2mbit"))
        self.network.slow("b", None)

    def test_a_link_loses_packets(self):
        self.in_mid_answer(segments("", "b", device=self.device),
                           lambda _job: self.network.set_wire("b", Wire(delay_ms=2, loss=0.02)))

    # ---- machines ----

    def test_a_machine_stands_still_for_longer_than_its_lease(self):
        def freeze(job):
            self.network.freeze("b")
            time.sleep(9)
            self.still_running(job)
            self.network.thaw("b")
        self.in_mid_answer(segments("", "b", device=self.device), freeze)

    def test_a_machine_loses_its_power_and_comes_back(self):
        def kill(job):
            self.network.kill_all("b")
            self.still_running(job)
            job.forget(1)
            self.agent("b")
        self.in_mid_answer(segments("", "b", device=self.device), kill)


class FaultsOnEmulatedGpus(Faults):
    """The segments on an emulated GPU of each machine. It is slower: the faults that concern devices."""

    binary = EMULATED
    device = 'device = "cuda:0"'
    plain_words = ("--method", "plain", "--device", "cuda:0")  # a GPU's bits are not a CPU's
    variables = {"PACELINE_EMULATED_DEVICES": "1"}


CONCERN_DEVICES = ("test_a_stage_of_another_machine_is_killed", "test_a_link_is_cut_until_the_lease_has_ended",
                   "test_an_agent_is_killed_and_another_one_comes_on_its_machine",
                   "test_a_machine_stands_still_for_longer_than_its_lease")
for name in dir(Faults):
    if name.startswith("test_") and name not in CONCERN_DEVICES:
        setattr(FaultsOnEmulatedGpus, name, None)  # no test of this class


if __name__ == "__main__":
    main()
