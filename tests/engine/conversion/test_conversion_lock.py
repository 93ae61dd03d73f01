# SPDX-License-Identifier: GPL-2.0-or-later
"""Test conversions in a process of their own: killed, interrupted, or with an engine
that restarts, the next run resumes them; and of the runs of two machines in a data
center one works at a time.

The double is in this process and survives. test_conversion_work.py tries kills between
all other steps, without processes. The second machine is the same command with its own
states.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import signal
import subprocess
import threading
from types import SimpleNamespace

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.jobs import delete_completed, jobs_of
from support.engine.conversion_process import (
    LIMIT_S,
    OFFLINE,
    REVERT,
    ROLLING,
    ROLLING_ACTS,
    Meanwhile,
    Site,
)
from support.engine.engine_command_line import Clock, open_session

from ovirt_rdma.engine_sdk_tools.conversion import model
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    ConversionRequest,
    ConversionState,
    DomainRecord,
    Stage,
    StateFolder,
)
from ovirt_rdma.engine_sdk_tools.conversion.plan import earlier_conversions
from ovirt_rdma.engine_sdk_tools.job import (
    DataCenterLock,
    EngineJob,
    OtherRun,
    described,
)

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

HEAL = ("domain", "heal", "-y")


class Machines(Site):
    """``elsewhere`` runs the command as another machine."""

    def __init__(self, capsys, double, folder):
        super().__init__(capsys, double, folder / "here")
        self._other = folder / "elsewhere"

    def elsewhere(self, *words):
        mine, self.folder = self.folder, self._other
        try:
            return self.here(*words)
        finally:
            self.folder = mine

    def refused_elsewhere(self, *verbs) -> None:
        """Check that the other machine changes nothing and gives the reason."""
        before = len(self.acts)
        for words in verbs or (ROLLING, OFFLINE):
            found = self.elsewhere(*words)
            assert found.code == 75, found
            assert "open task 'ovirt-rdma: " in found.err
            assert "--take-over" in found.err
            assert "Traceback" not in found.err
        assert len(self.acts) == before


@pytest.fixture
def machines(capsys, tmp_path):
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    with EngineDouble(world) as double:
        yield Machines(capsys, double, tmp_path)
        assert double.strict_errors == []


@pytest.mark.parametrize("number", range(ROLLING_ACTS))
def test_the_second_is_refused_before_every_change_of_the_first(machines, number):
    with machines.held(number, *ROLLING):
        machines.refused_elsewhere()
        for words in (ROLLING, REVERT) if number == 1 else ():
            machines.here(*words).refused(75, "another run of ovirt-rdma", "wait until")
    machines.is_converted()
    # It is free again.
    assert machines.elsewhere(*ROLLING, "--no-job").code == 0


@pytest.mark.parametrize("differs", ["machine-id", "name"])
@pytest.mark.parametrize("copied", ["owner*", "*"], ids=["owner", "all"])
def test_a_clone_does_not_take_the_others_run_for_its_own(
    machines, tmp_path, monkeypatch, differs, copied
):
    """A cloned machine, or a restored backup: it has the files of a run that lives."""
    with machines.held(3, *ROLLING):
        copy = tmp_path / "elsewhere"
        copy.mkdir()
        for each in machines.folder.glob(copied):
            shutil.copy2(each, copy)
        if differs == "name":
            monkeypatch.setattr(model.socket, "gethostname", lambda: "clone")
        else:
            (tmp_path / "machine-id").write_text(f"{1:032x}\n")
            monkeypatch.setattr(model, "MACHINE_ID", tmp_path / "machine-id")
        machines.refused_elsewhere(ROLLING)
    machines.is_converted()


def test_the_machine_id_is_not_published(tmp_path, monkeypatch):
    """machine-id(5) asks for that: the engine's tasks show what this file has."""
    id = "0123456789abcdef0123456789abcdef"
    (tmp_path / "machine-id").write_text(f"{id}\n")
    monkeypatch.setattr(model, "MACHINE_ID", tmp_path / "machine-id")
    folder = StateFolder(tmp_path / "states")
    assert folder.owner() == folder.owner()
    (file,) = (tmp_path / "states").iterdir()
    shown = f"{file.name} {folder.owner()}"
    assert not any(id[n : n + 8] in shown for n in range(len(id) - 7))


@pytest.mark.parametrize("words", [ROLLING, OFFLINE], ids=["rolling", "offline"])
def test_the_lock_is_held_at_every_request_of_the_first(machines, words):
    """From the creation of its job to its end, even while it only reads."""
    asked: list[str] = []
    held: list[bool] = []
    spring = machines.double.traps.spring
    about = [machines.world.data_center("dc1").id]

    def look_elsewhere(method: str, path: str):
        begun = any(job.end_time is None for job in jobs_of(machines.world).values())
        # Except for the requests of the other machine itself.
        if begun and gate.acquire(blocking=False):
            with gate_held(), open_session(machines.double, Clock()) as other:
                asked.append(f"{method} {path}")
                try:
                    DataCenterLock(other, "b 2").check_free(about)
                    held.append(False)
                except OtherRun:
                    held.append(True)
        return spring(method, path)

    @contextlib.contextmanager
    def gate_held():
        try:
            yield
        finally:
            gate.release()

    gate = threading.Lock()
    machines.double.traps.spring = look_elsewhere
    assert machines.here(*words).code == 0
    machines.double.traps.spring = spring
    assert len(asked) > 50
    assert [one for one, so in zip(asked, held) if not so] == []
    # The last request ended the job.
    assert re.fullmatch("POST /jobs/[^/]*/end", asked[-1])


@pytest.mark.parametrize("number", range(ROLLING_ACTS))
def test_a_killed_run_keeps_the_others_off(machines, number):
    """Even if the engine restarts and clears jobs; the run itself can be resumed."""
    machines.killed(number, *ROLLING, applied=True)
    machines.refused_elsewhere(ROLLING)
    machines.double.restart(down_for_requests=0)
    delete_completed(machines.world)
    machines.refused_elsewhere(ROLLING)
    again = machines.here(*ROLLING)
    assert again.code == 0, again
    machines.is_converted()
    done = machines.here(*ROLLING, "--no-job", "-o", "json")
    assert not done.events  # nothing remains to be done
    assert not [job for job in jobs_of(machines.world).values() if job.end_time is None]
    assert machines.elsewhere(*HEAL).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_keeps_the_others_off(machines, number):
    """By Ctrl-C, by the end of a service, by a lost SSH session. Otherwise the other
    machine would record half a conversion as the baseline.
    """
    code, out, err = machines.ended(number, 2, *ROLLING, applied=True)
    assert (code, out) == (128 + number, ""), err
    said = " ".join(line for line in err.splitlines() if line[:1] != "{")
    assert "Traceback" not in said
    assert "resume it with 'ovirt-rdma domain convert" in said
    assert "revert it with 'ovirt-rdma domain revert data1'" in said
    assert any(one.status == "started" for one in jobs_of(machines.world).values())
    machines.refused_elsewhere()
    back = machines.here(*REVERT)
    assert back.code == 0, back
    machines.is_all("tcp")
    assert machines.elsewhere(*ROLLING).code == 0
    machines.is_converted()


def test_a_run_that_is_taken_over_stops(machines):
    """It stops at its next change and keeps its state; the other run does the work."""
    with machines.held(1, *ROLLING, code=75) as told:
        done = machines.elsewhere(*ROLLING, "--take-over")
        assert done.code == 0, done
        machines.is_converted()
        before = len(machines.acts)
    assert "another run has taken over" in told[0]
    said = [event.description for event in machines.world.log.events]
    assert not [one for one in said if "interrupted; " in one]
    assert len(machines.acts) == before
    # The same command finds nothing to do here.
    again = machines.here(*ROLLING)
    assert again.code == 0, again
    machines.is_converted()


def test_a_run_that_is_killed_when_it_is_done_keeps_nobody_off(machines, monkeypatch):
    """The end of its job is the last thing that a run does."""
    monkeypatch.setattr(EngineJob, "finish", lambda self, *words, **more: None)
    assert machines.here(*ROLLING).code == 0
    monkeypatch.undo()
    machines.refused_elsewhere(ROLLING)
    # This machine knows that the conversion is complete.
    assert machines.here(*ROLLING).code == 0
    assert machines.elsewhere(*ROLLING).code == 0
    (job,) = jobs_of(machines.world).values()
    assert job.status == "finished"


def test_how_many_changes_there_are(machines):
    """The tests here kill the command at each of them."""
    pushes_here = 2  # these do not go over HTTP here
    assert machines.count(*ROLLING) == ROLLING_ACTS - pushes_here
    machines.is_converted()


@pytest.mark.parametrize("number", [0, ROLLING_ACTS - 1])
def test_killed_before_a_change_and_run_again(machines, number):
    machines.killed(number, *ROLLING, applied=False)
    again = machines.here(*ROLLING)
    assert again.code == 0, again
    machines.is_converted()


def test_killed_and_reverted(machines):
    machines.killed(4, *ROLLING, applied=True)
    back = machines.here(*REVERT)
    assert back.code == 0, back
    machines.is_all("tcp")
    assert not machines.world.connection_of("data1").mount_options
    assert {host.policy_text for host in machines.world.hosts.values()} == {""}


def test_an_offline_conversion_that_is_killed(machines):
    machines.killed(4, *OFFLINE, applied=True)
    again = machines.here(*OFFLINE)
    assert again.code == 0, again
    machines.is_converted()


def test_killed_time_and_again(machines):
    """Each run gets one change further."""
    for number in (1, 3, 5):
        machines.killed(number, *ROLLING, applied=True)
    assert machines.here(*ROLLING).code == 0
    machines.is_converted()


@pytest.mark.parametrize("number", range(ROLLING_ACTS - 2))
def test_an_engine_that_restarts_in_the_middle(machines, number):
    """Sessions and the answer are lost, and some requests get a page of HTML."""
    machines.at(
        number, lambda: machines.double.restart(down_for_requests=9), applied=True
    )
    done = machines.here(*ROLLING)
    assert done.code == 0, done
    machines.is_converted()


def test_a_run_that_is_killed_before_it_has_noted_its_job(machines):
    """Its plan is not recorded yet, but the job exists."""
    running: list[subprocess.Popen[str]] = []
    started = threading.Event()
    spring = machines.double.traps.spring

    def kill() -> None:
        started.wait(LIMIT_S)
        running[0].send_signal(signal.SIGKILL)
        running[0].wait(LIMIT_S)

    def kill_at_its_job(method: str, path: str):
        if (method, path) == ("POST", "/jobs"):
            machines.double.traps.spring = spring
            return Meanwhile(kill, applied=True)
        return spring(method, path)

    machines.double.traps.spring = kill_at_its_job
    running.append(machines.start(*ROLLING))
    started.set()
    running[0].communicate(timeout=LIMIT_S)
    assert running[0].returncode == -signal.SIGKILL
    machines.refused_elsewhere(ROLLING)
    again = machines.here(*ROLLING)
    assert again.code == 0, again
    machines.is_converted()
    assert {job.status for job in jobs_of(machines.world).values()} == {"finished"}


def conversion(job=None) -> ConversionState:
    record = DomainRecord("d", "data1", "active", "c", "nas", "/x", "", "proto=rdma")
    request = ConversionRequest("rdma", rolling=True)
    return ConversionState("convert", "dc", request, (record,), (), job=job)


def test_a_run_on_another_data_center_keeps_nobody_off(double, clock):
    with open_session(double, clock) as one, open_session(double, clock) as two:
        ids = [f"{number:036}" for number in range(4)]
        theirs = described("convert domain x to rdma", ids[:2], "b 2")
        EngineJob(two, theirs, lasting=True)
        DataCenterLock(one, "a 1").check_free(ids[2:])
        with pytest.raises(OtherRun):
            DataCenterLock(one, "a 1").check_free(ids[1:3])


@pytest.mark.parametrize(
    ("stage", "first", "counts"),
    [
        (Stage.CONVERTED, None, True),
        (Stage.ROLLED_BACK, None, False),
        # What an earlier conversion did still applies.
        (Stage.ROLLED_BACK, "proto=tcp", True),
        (Stage.REVERTED, None, False),
        (Stage.STOPPED, None, False),
    ],
)
def test_what_was_rolled_back_is_not_converted(stage, first, counts):
    before = conversion()
    domains = tuple(dataclasses.replace(d, first=first) for d in before.domains)
    state = dataclasses.replace(before, stage=stage, domains=domains)
    found = earlier_conversions([state], [SimpleNamespace(id="d")])
    assert found == ([state] if counts else [])


def test_of_two_that_begin_together_at_most_one_goes_on(double, clock):
    """Each has looked before the other created its job."""
    with open_session(double, clock) as one, open_session(double, clock) as two:
        first, second = DataCenterLock(one, "a 1"), DataCenterLock(two, "b 2")
        first.check_free(["dc"])
        second.check_free(["dc"])
        mine = first.claim(conversion(), "convert", ["dc"])
        assert mine is not None
        with pytest.raises(OtherRun):
            second.claim(conversion(), "convert", ["dc"])
        first.check()
        # The second leaves nothing open.
        (left,) = [j for j in jobs_of(double.world).values() if j.end_time is None]
        assert left.id == mine


def test_a_job_that_nobody_knows_of_any_more_is_no_lock(double, clock):
    """The record has its id, but the engine's database was restored since."""
    with open_session(double, clock) as session:
        lock = DataCenterLock(session, "a 1")
        assert lock.claim(conversion(job="0" * 8), "convert", ["dc"]) not in (
            None,
            "0" * 8,
        )
        lock.check()
