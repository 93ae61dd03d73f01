# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric sm`` with the real opensm and infiniband-diags, on a simulated fabric.

The files of the host are a fake's; its systemctl starts and ends the real opensm, with
the command of our unit. The port's state in /sys is that of ibsim.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Callable

import pytest
from support.fakes.fake_processes import end_process, run_process

from lab import simulated_fabric
from lab.problem import LabProblem
from lab.simulated_fabric import SimulatedFabric
from ovirt_rdma.host.system.commands import CommandFailed

pytestmark = [pytest.mark.lab, pytest.mark.hypervisor]

HOSTS = ("hv1", "hv2", "hv3")
FIRST = 0x2C90300FB1230  # the fake's port is 1 more
HV1, HV2, HV3 = (f"0x{FIRST + n * 16 + 1:016x}" for n in range(3))
UNIT = f"ovirt-rdma-opensm@{HV1}.service"
SETTINGS = f"/etc/ovirt-rdma/opensm-{HV1}.conf"
TEMPLATE = Path(__file__).parents[3] / "host/systemd/ovirt-rdma-opensm@.service"
PORT = "/sys/class/infiniband/mlx4_0/ports/1"
STATES = {"Down": "1: DOWN", "Initialize": "2: INIT", "Active": "4: ACTIVE"}
# opensm's default: 4 missed answers, one question each 10 s (osm_base.h).
TAKEOVER_S = 90.0
ATTEMPTS = 5

POLICY = """\
version: 1
fabric:
  hosts: {{hv1: [{hv1}], hv2: [{hv2}]}}
  subnet_managers: {managers}
"""


class Site:
    """hv1, with systemd's part of our unit, and other hosts of the fabric."""

    def __init__(self, changeable, simulated: SimulatedFabric) -> None:
        self.host, self.simulated = changeable, simulated
        self.fake, self.root = changeable.fake, changeable.root
        self.running = None
        self.others = []
        self.fake.units[UNIT] = "disabled"
        self.fake.write("/usr/sbin/opensm", "")
        (self.root / "etc").mkdir(exist_ok=True)
        self.prepared = self.fake.runner.programs["systemctl"]
        self.fake.runner.program("systemctl", self.systemctl)
        for name in ("sminfo", "saquery", "smpquery", "ibnetdiscover"):
            self.fake.runner.program(name, self.tool)
        self.ended = threading.Event()
        self.mirror()
        self.thread = threading.Thread(target=self.keep_mirror)
        self.thread.start()

    def __call__(self, *words: str):
        return self.host("fabric", "sm", *words)

    def follow(self, managers: str) -> None:
        self.host.follow(POLICY.format(hv1=HV1, hv2=HV2, managers=managers))

    def tool(self, argv: Sequence[str]) -> str:
        words = ["ibsim0" if word == "mlx4_0" else word for word in argv]
        try:
            return self.simulated.run("hv1", *words)
        except LabProblem as problem:
            raise CommandFailed(str(problem), 1) from None

    def keep_mirror(self) -> None:
        """As the kernel does, show each change; until the end."""
        while not self.ended.wait(0.2):
            self.mirror()

    def mirror(self) -> None:
        """Give the fake's port the state and LIDs of the simulated one."""
        shown = self.simulated.run("hv1", "smpquery", "portinfo", "-D", "0")
        found = dict(re.findall(r"^(Lid|SMLid|LinkState):\.+(\S+)", shown, re.M))
        shown = {
            "state": STATES[found["LinkState"]],
            "lid": f"{int(found['Lid']):#x}",
            "sm_lid": f"{int(found['SMLid']):#x}",
        }
        for name, text in shown.items():
            new = self.root / "new"
            new.write_text(f"{text}\n")
            new.replace(self.root / PORT[1:] / name)

    def systemctl(self, argv: Sequence[str]) -> str:
        words = tuple(argv[1:])
        if words in (("enable", "--now", UNIT), ("disable", "--now", UNIT)):
            self.fake.units[UNIT] = f"{words[0]}d"
            self.end()
            if words[0] == "enable":
                self.start()
            return ""
        if words == ("try-restart", UNIT):
            if self.running:
                self.end()
                self.start()
            return ""
        return self.prepared(argv)

    def start(self) -> None:
        """Start opensm as our unit does, with the paths of this machine."""
        (line,) = re.findall(r"^ExecStart=(.*)", TEMPLATE.read_text(), re.M)
        words = line.replace("%I", HV1).split()
        assert words == ["/usr/sbin/opensm", "--config", SETTINGS]
        text = (self.root / SETTINGS[1:]).read_text()
        for path in re.findall(r"_file (\S+)", text):
            here = self.root / path[1:]
            here.parent.mkdir(parents=True, exist_ok=True)
            text = text.replace(path, str(here))
        settings = self.root / "opensm.conf"
        settings.write_text(text)
        self.running = self.simulated.start("hv1", "opensm", "--config", str(settings))
        run_process(self.fake.path, self.running.pid, *words)

    def end(self) -> None:
        """End opensm as systemd does."""
        if self.running:
            end_process(self.root, self.running.pid)
            self.running.send_signal(signal.SIGTERM)
            self.running.wait(timeout=60)
            self.running = None

    def other(self, host: str, priority: int) -> None:
        """Run an opensm on another host, and wait until the fabric knows it."""
        log = self.simulated.folder / f"{host}.log"
        words = ("opensm", "-f", str(log), "-p", str(priority), "-P", "/nonexistent")
        self.others.append(self.simulated.start(host, *words))
        guid = f"{self.simulated.guids[host]:#x}"
        simulated_fabric.wait(lambda: guid in self.sminfo(host, *self.lid(host)))
        simulated_fabric.wait(lambda: "4: ACTIVE" in self.state())

    def state(self) -> str:
        return (self.root / PORT[1:] / "state").read_text()

    def sminfo(self, *words: str) -> str:
        try:
            return self.simulated.run(words[0], "sminfo", *words[1:])
        except LabProblem:
            return ""

    def lid(self, host: str) -> list[str]:
        """Return the LID of a host's port, if it has one, to ask its own manager."""
        shown = self.simulated.run(host, "smpquery", "portinfo", "-D", "0")
        return re.findall(r"^Lid:\.+([1-9]\d*)$", shown, re.M)

    def is_master(self, guid: str) -> bool:
        words = f"sm guid {int(guid, 16):#x}, "
        return words in self.sminfo("hv3") and "MASTER" in self.sminfo("hv3")

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        self.end()
        for process in self.others:
            process.kill()
            process.wait()


@pytest.fixture
def new_site(changeable, tmp_path_factory) -> Iterator[Callable[[], Site]]:
    """Return what makes the site on a fabric without a past.

    A port that was ACTIVE stays it without a manager. And an opensm that has just
    started drops the master's question for its SMInfo until it has found its own node
    (osm_sminfo_rcv.c, osm_sminfo_rcv_process). The kernel ends such a question after
    some 200 ms; umad2sim never does, and the master never sweeps again. Where a test
    needs the master's sweep, it tries on another fabric then.
    """
    with ExitStack() as stack:

        def new() -> Site:
            stack.close()
            folder = tmp_path_factory.mktemp("fabric")
            package = simulated_fabric.fetched()
            running = simulated_fabric.running(package, folder, HOSTS, FIRST)
            made = Site(changeable, stack.enter_context(running))
            stack.callback(made.close)
            return made

        yield new


@pytest.fixture
def site(new_site) -> Site:
    return new_site()


def test_it_becomes_master_is_proven_and_undone(site):
    site.follow("{hv1: {priority: 14}}")
    assert site.sminfo("hv3") == ""
    result = site("enable")
    assert (result.code, result.err) == (0, ""), result.out
    assert "opensm is master at mlx4_0/1 with priority 14" in result.out
    assert site.is_master(HV1)
    assert "4: ACTIVE" in site.state()
    again = site("enable", "-o", "json").document
    assert (again["run"], again["proven"], again["steps"]) == (None, True, [])
    shown = site.host("fabric", "check")
    assert "opensm of ovirt-rdma is running with priority 14" in shown.out
    assert shown.code == 0
    undone = site("disable")
    assert undone.code == 0
    assert "No other subnet manager is known at mlx4_0/1" in undone.out
    assert site.running is None
    assert not (site.root / SETTINGS[1:]).exists()
    assert site.sminfo("hv3") == ""


def test_beside_a_master_that_the_policy_does_not_name_it_is_refused(site):
    site.other("hv3", 3)
    site.follow("{hv1: {priority: 14}}")
    refused = site("enable")
    refused.refused(
        4,
        f"the subnet manager of mlx4_0/1 is {HV3} with priority 3, which the policy "
        "does not name",
        "fix: stop that one",
    )
    assert site.running is None
    assert not (site.root / SETTINGS[1:]).exists()
    site.follow("{hv1: {priority: 14, standby: on}}")
    site("enable").refused(4, "would take over from")
    assert site.is_master(HV3)


@pytest.mark.faults
def test_it_stands_by_and_takes_over(site):
    site.other("hv3", 9)
    site.follow("{hv1: {priority: 4, standby: on}}")
    result = site("enable")
    assert (result.code, result.err) == (0, ""), result.out
    assert "opensm is standby at mlx4_0/1 with priority 4" in result.out
    assert site.is_master(HV3)
    site.others.pop().kill()
    simulated_fabric.wait(lambda: site.is_master(HV1), TAKEOVER_S)


@pytest.mark.faults
def test_it_takes_over_from_a_master_that_the_policy_names(new_site, monkeypatch):
    monkeypatch.setattr("ovirt_rdma.cli.host.fabric.START_TIMEOUT_S", 20.0)
    for _ in range(ATTEMPTS):
        site = new_site()
        site.other("hv2", 5)
        site.follow("{hv1: {priority: 14}, hv2: {priority: 5}}")
        result = site("enable")
        if result.code == 0:
            break
    assert (result.code, result.err) == (0, ""), result.out
    assert site.is_master(HV1)
    shown = site.host("fabric", "check").out
    assert "the subnet manager is at this host" in shown
    assert f"{HV2} with priority 5 is" in shown


@pytest.mark.faults
def test_with_a_lower_priority_it_leaves_the_fabric_to_the_other_one(new_site):
    for _ in range(ATTEMPTS):
        site = new_site()
        site.follow("{hv1: {priority: 14}, hv2: {priority: 5}}")
        assert site("enable").code == 0
        site.other("hv2", 5)
        if HV2 in site.host("fabric", "check").out:
            break
        site("disable")
    # opensm ends without a handover, and the other one waits for four answers.
    site.follow("{hv1: {priority: 2}, hv2: {priority: 5}}")
    lower = site("enable")
    assert lower.code == 0, lower.out
    assert "standby at mlx4_0/1 with priority 2" in lower.out
    # On a busy machine sminfo may get no answer in its time, and is asked again.
    simulated_fabric.wait(lambda: site.is_master(HV2))
    assert site("disable").code == 0
    simulated_fabric.wait(lambda: site.is_master(HV2))
