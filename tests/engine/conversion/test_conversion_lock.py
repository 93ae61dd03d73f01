# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that of the runs of two machines in a data center one works at a time, whatever
is killed, interrupted or restarted meanwhile.

The first runs as in conversion_process.py; the second machine is the same command with
its own states.
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
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(LIMIT_S)

    machines.hold(number, hold)
    first = machines.start(*ROLLING)
    try:
        assert reached.wait(LIMIT_S)
        machines.refused_elsewhere()
    finally:
        go_on.set()
        out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0, (out, err)
    machines.is_converted()
    # It is free again.
    assert machines.elsewhere(*ROLLING, "--no-job").code == 0


@pytest.mark.parametrize("differs", ["machine-id", "name"])
@pytest.mark.parametrize("copied", ["owner*", "*"], ids=["owner", "all"])
def test_a_clone_does_not_take_the_others_run_for_its_own(
    machines, tmp_path, monkeypatch, differs, copied
):
    """A cloned machine, or a restored backup: it has the files of a run that lives."""
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(LIMIT_S)

    machines.hold(3, hold)
    first = machines.start(*ROLLING)
    try:
        assert reached.wait(LIMIT_S)
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
    finally:
        go_on.set()
        out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0, (out, err)
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
    assert not [job for job in jobs_of(machines.world).values() if job.end_time is None]
    assert machines.elsewhere(*HEAL).code == 0


def test_an_engine_that_restarts_meanwhile(machines):
    """The first run continues, and the second is refused at each later change of it."""
    found = []

    def restart() -> None:
        machines.double.restart(down_for_requests=0)
        delete_completed(machines.world)

    def try_elsewhere() -> None:
        machines.refused_elsewhere(ROLLING)
        found.append(True)

    machines.hold(1, restart)
    for number in range(2, ROLLING_ACTS):
        machines.hold(number, try_elsewhere)
    first = machines.start(*ROLLING)
    out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0, (out, err)
    assert len(found) == ROLLING_ACTS - 2
    machines.is_converted()


def test_an_interrupted_run_keeps_the_others_off(machines):
    """Otherwise the other machine would record half a conversion as the baseline."""
    running: list[subprocess.Popen[str]] = []
    started = threading.Event()

    def interrupt() -> None:
        started.wait(LIMIT_S)
        running[0].send_signal(signal.SIGINT)

    machines.at(2, interrupt, applied=True)
    running.append(machines.start(*ROLLING))
    started.set()
    running[0].communicate(timeout=LIMIT_S)
    assert running[0].returncode == 130
    machines.refused_elsewhere()
    back = machines.here(*REVERT)
    assert back.code == 0, back
    machines.is_all("tcp")
    assert machines.elsewhere(*ROLLING).code == 0
    machines.is_converted()


def test_half_a_conversion_keeps_the_others_off(machines):
    broken = machines.world.host("host01")
    broken.vms, broken.stuck_vms = ["vm1"], ["vm1"]
    assert machines.here(*ROLLING).code == 5
    machines.refused_elsewhere()
    broken.vms, broken.stuck_vms = [], []
    assert machines.here(*ROLLING).code == 0
    machines.is_converted()
    assert machines.elsewhere(*HEAL).code == 0


def test_a_run_that_is_taken_over_stops(machines):
    """It stops at its next change and keeps its state; the other run does the work."""
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        go_on.wait(LIMIT_S)

    machines.hold(1, hold)
    first = machines.start(*ROLLING)
    try:
        assert reached.wait(LIMIT_S)
        done = machines.elsewhere(*ROLLING, "--take-over")
        assert done.code == 0, done
        machines.is_converted()
        before = len(machines.acts)
    finally:
        go_on.set()
        out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 75, (out, err)
    assert "another run has taken over" in err
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
    return ConversionState("convert", "dc", "rdma", "rolling", (record,), (), job=job)


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
