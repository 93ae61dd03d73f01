# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric`` on a host whose subnet manager is the real opensm, on a simulated fabric.

The files of the host are a fake's; opensm, its signal and infiniband-diags are real.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence

import pytest
from support.fakes.fake_processes import run_process

from lab import record_fabric, simulated_fabric
from lab.problem import LabProblem
from lab.simulated_fabric import SimulatedFabric
from ovirt_rdma.cli.host import fabric
from ovirt_rdma.host.system.commands import CommandFailed

pytestmark = [pytest.mark.lab, pytest.mark.hypervisor]

HOSTS = ("hv1", "hv2", "hv3")
# The fake's port, and those of the others.
FIRST = 0x2C90300FB1230
HV1, HV2, HV3 = (f"0x{FIRST + n * 16 + 1:016x}" for n in range(3))
FILE = "/etc/rdma/partitions.conf"
MINE = "Default=0x7fff,ipoib : ALL=full;\nold=0x7,ipoib : ALL=limited, SELF=full;\n"
POLICY = f"""\
version: 1
fabric:
  hosts: {{hv2: [{HV2}], hv3: [{HV3}]}}
  partitions:
    storage: {{pkey: 0x8001, members: [{HV1}, hv2=limited]}}
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory) -> Iterator[SimulatedFabric]:
    folder = tmp_path_factory.mktemp("hosts")
    package = simulated_fabric.fetched()
    with simulated_fabric.running(package, folder, HOSTS, FIRST) as running:
        yield running


@pytest.fixture
def site(changeable, simulated, monkeypatch):
    """hv1 with the operator's file, and opensm as the subnet manager."""
    fake, file = changeable.fake, changeable.root / FILE[1:]
    fake.write(FILE, MINE.rstrip())

    def tool(argv: Sequence[str]) -> str:
        words = ["ibsim0" if word == "mlx4_0" else word for word in argv]
        try:
            return simulated.run("hv1", *words)
        except LabProblem as problem:
            raise CommandFailed(str(problem), 1) from None

    for name in ("sminfo", "saquery", "smpquery"):
        fake.runner.program(name, tool)
    with simulated.manager("hv1", file) as process:
        # opensm knows the file by its path on this machine.
        command = simulated.command("hv1", file)
        words = [FILE if word == str(file) else word for word in command]
        run_process(fake.path, process.pid, *words)

        def kill(argv: Sequence[str]) -> str:
            assert tuple(argv) == ("kill", "-HUP", str(process.pid))
            os.kill(process.pid, signal.SIGHUP)
            return ""

        fake.runner.program("kill", kill)
        changeable.file, changeable.simulated = file, simulated
        yield changeable


def tables(site) -> dict[str, set[int]]:
    return {host: site.simulated.pkeys(host) for host in HOSTS}


BEFORE = {"hv1": {0xFFFF, 0x8007}, "hv2": {0xFFFF, 0x7}, "hv3": {0xFFFF, 0x7}}


def test_the_fabric_gets_the_policys_partitions_and_those_before(site):
    site.follow(POLICY)
    assert tables(site) == BEFORE
    result = site("fabric", "partitions", "apply")
    assert (result.code, result.err) == (0, "")
    assert "The subnet manager has these partitions." in result.out
    assert tables(site) == {
        "hv1": {0xFFFF, 0x8001},
        "hv2": {0xFFFF, 1},
        "hv3": {0xFFFF},
    }
    again = site("fabric", "partitions", "apply", "-o", "json").document
    assert (again["run"], again["proven"]) == (None, True)
    assert "the subnet manager is at this host" in site("fabric", "check").out
    groups = site.simulated.run("hv1", "saquery", "-g")
    assert all(f"ff12:401b:{one}::ffff:ffff" in groups for one in ("ffff", "8001"))
    assert site("revert").code == 0
    assert site.file.read_text() == MINE
    simulated_fabric.wait(lambda: tables(site) == BEFORE)


def test_a_group_that_opensm_cannot_make_is_rolled_back(site, monkeypatch):
    # opensm 3.3.23 ends at 600 Gb/s, and says so in its log only.
    monkeypatch.setattr(fabric, "SWEEP_TIMEOUT_S", 3.0)
    site.follow(POLICY.replace("limited]", "limited], rate: 1200"))
    result = site("fabric", "partitions", "apply")
    assert result.code == 6
    assert "storage (0x8001) has no broadcast group" in " ".join(result.out.split())
    assert site.file.read_text() == MINE
    simulated_fabric.wait(lambda: tables(site) == BEFORE)


def test_a_partition_without_this_host_is_proven_by_its_tables(site):
    site.follow(POLICY.replace(f"[{HV1}, hv2=limited]", "[hv2, hv3=limited]"))
    assert site("fabric", "partitions", "apply").code == 0
    assert tables(site) == {
        "hv1": {0xFFFF},
        "hv2": {0xFFFF, 0x8001},
        "hv3": {0xFFFF, 1},
    }
    # The group is there: opensm shows it to its members only.
    shown = {host: site.simulated.run(host, "saquery", "-g") for host in HOSTS}
    group = "ff12:401b:8001::ffff:ffff"
    assert {host for host in HOSTS if group in shown[host]} == {"hv2", "hv3"}


def test_check_compares_ports_and_groups(site):
    site.follow(POLICY)
    keys = "/sys/class/infiniband/mlx4_0/ports/1/pkeys"
    site.fake.write(f"{keys}/0", "0xffff")
    wrong = site("fabric", "check")
    assert wrong.code == 3
    assert "storage (0x8001) has no broadcast group" in wrong.out
    assert site("fabric", "partitions", "apply").code == 0
    site.fake.write(f"{keys}/1", "0x8001")
    right = site("fabric", "check")
    assert (right.code, right.err) == (0, "")


def test_the_recorded_session_is_that_of_this_version():
    when = re.compile(r"Recorded on \S+|activity count \d+|Version \S+")
    recorded = record_fabric.DOCUMENT.read_text()
    assert when.sub("", record_fabric.record()) == when.sub("", recorded)
