# SPDX-License-Identifier: GPL-2.0-or-later
"""Connect many exports of faulty servers at once.

The tests count questions to servers and mounts, and their order. They measure seconds
only for our own waits, because all other times depend on the load of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab import installed_host
from lab.fault_site import RULES, Case, FaultSite, definition
from lab.topology import NETDEV, Topology
from lab.vdsm_daemon import Outcome
from ovirt_rdma.storage import rdma_cm_probe
from ovirt_rdma.storage.readiness import BURST_GAP_S

pytestmark = pytest.mark.faults

MANY, FEW = 20, 5
# A refused probe is repeated, because a server takes two at once for a stale one.
REFUSAL = 3
MOUNT_FAILED = 477
FOLDER = "/srv/many"
SILENT = f"10.99.0.77 lladdr 02:00:00:00:00:77 dev {NETDEV}"
RDMA_CM = "/dev/infiniband/rdma_cm"
PROBE = f"{installed_host.LIBRARY}/storage/rdma_cm_probe.py"
# Where each probe leaves a line.
PROBES = "/run/probes-that-asked"
COUNTED = f"""
with open("{PROBES}", "a") as counted:
    __name__ == "__main__" and counted.write("one\\n")
"""


@pytest.fixture(scope="module")
def whole_site(two_guests: Topology) -> Iterator[FaultSite]:
    made = FaultSite(two_guests)
    # No rule names its exports: stock VDSM.
    made.shell("echo 10.99.0.1 stock >> /etc/hosts")
    two_guests.nfs.add_export(FOLDER)
    for rule in RULES:
        folders = f"/nfsroot{FOLDER}/{rule}-{{1..{MANY}}}"
        line = f"mkdir {folders} && chown 36:36 {folders}"
        two_guests.server.run(line, check=True)
    code = Path(rdma_cm_probe.__file__).read_text()
    code = code.replace("\n\ndef main(", f"{COUNTED}\n\ndef main(")
    count = f"install -m 666 /dev/null {PROBES}; cat > /run/probe.py"
    two_guests.hypervisor.run(count, input=code, check=True)
    made.shell(f"mount --bind /run/probe.py {PROBE}")
    yield made
    made.shell(f"umount {PROBE}")
    made.vdsmd.stop()


@pytest.fixture
def site(whole_site: FaultSite) -> Iterator[FaultSite]:
    yield whole_site
    whole_site.unmount_all()


@pytest.fixture
def without_listener(site: FaultSite) -> Iterator[FaultSite]:
    site.lab.nfs.restart(rdma_port=None)
    yield site
    site.lab.nfs.restart()


def exports(server: str, rule: str, number: int = MANY) -> list[dict[str, str]]:
    case = Case(rule, "4.2")
    names = (f"{server}:{FOLDER}/{rule}-{n + 1}" for n in range(number))
    return [definition(case, name) for name in names]


def nobody_asked(site: FaultSite) -> None:
    """Wait until vdsmd has forgotten the earlier test's answers, and start counting."""
    time.sleep(BURST_GAP_S + 0.5)
    asked(site)


def asked(site: FaultSite) -> int:
    """Return how often a server was asked over RDMA since the last call."""
    return int(site.shell(f"wc -l < {PROBES}; truncate -s 0 {PROBES}"))


def mounts(*outcomes: Outcome) -> int:
    """Return how often mount(8) was run."""
    return sum("INFO mounting" in line for one in outcomes for line in one.log)


@pytest.mark.parametrize("rule", RULES)
def test_many_on_a_dead_server_wait_for_one_answer(site: FaultSite, rule: str) -> None:
    nobody_asked(site)
    outcome = site.vdsmd.connect(*exports("absent", rule))
    assert outcome.statuses == [MOUNT_FAILED] * MANY
    assert (asked(site), mounts(outcome)) == (1, 0)


def test_many_without_a_listener_wait_for_one_answer(
    without_listener: FaultSite,
) -> None:
    site = without_listener
    nobody_asked(site)
    outcome = site.vdsmd.connect(*exports("nas", "require-rdma"))
    assert outcome.statuses == [MOUNT_FAILED] * MANY
    assert 1 <= asked(site) <= REFUSAL
    assert mounts(outcome) == 0


@pytest.mark.parametrize("server", ["absent", "nas"])
def test_in_a_call_each_they_wait_for_few_answers(
    without_listener: FaultSite, server: str
) -> None:
    site = without_listener
    nobody_asked(site)
    outcomes = [site.vdsmd.connect(one) for one in exports(server, "prefer-rdma")]
    # A server is asked again after a gap of BURST_GAP_S, or after LONGEST_S; the dead
    # server costs its rule's 2 s each time.
    seconds = sum(one.seconds for one in outcomes)
    each, cost = (1, BURST_GAP_S + 2) if server == "absent" else (REFUSAL, BURST_GAP_S)
    assert 1 <= asked(site) <= each * (1 + seconds / cost)


def test_many_fall_back_with_one_mount_each_as_in_stock(
    without_listener: FaultSite,
) -> None:
    site = without_listener
    ours = site.vdsmd.connect(*exports("nas", "prefer-rdma"))
    assert ours.statuses == [0] * MANY
    assert site.transport(f"nas:{FOLDER}/prefer-rdma-{MANY}") == "tcp"
    site.unmount_all()
    stock = site.vdsmd.connect(*exports("stock", "prefer-rdma"))
    assert stock.statuses == [0] * MANY
    print(f"{MANY} TCP mounts: {ours.seconds:.1f} s ours, {stock.seconds:.1f} s stock")
    assert mounts(ours) == mounts(stock) == MANY


@pytest.mark.parametrize("rule", RULES)
def test_a_dead_server_keeps_no_other_waiting(site: FaultSite, rule: str) -> None:
    # Its address resolves, so its silence lasts for the rule's 30 s.
    site.shell(f"ip neigh replace {SILENT} nud permanent")
    try:
        outcome = site.vdsmd.connect(
            *exports("silent", rule, FEW), *exports("nas", "require-rdma", FEW)
        )
    finally:
        site.shell(f"ip neigh del {SILENT}")
    assert outcome.statuses == [MOUNT_FAILED] * FEW + [0] * FEW
    proven = [n for n, line in enumerate(outcome.log) if "rdma, proven" in line]
    within = "did not answer an RDMA connection within 30 s"
    refused = [n for n, line in enumerate(outcome.log) if within in line]
    assert len(proven) == FEW
    assert max(proven) < min(refused)


def test_a_second_caller_gets_the_error_of_the_first(site: FaultSite) -> None:
    # The server cannot be asked, so only the mount finds out that it hangs.
    site.shell(f"mv {RDMA_CM} {RDMA_CM}.away")
    (export,) = exports("quick", "require-rdma", 1)
    site.lab.server.monitor.freeze()
    try:
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(site.vdsmd.connect, export)
            site.shell("until pgrep -f '^/sbin/mount.nfs'; do sleep 0.2; done")
            second = pool.submit(site.vdsmd.connect, export)
            outcomes = [first.result(), second.result()]
    finally:
        site.lab.server.monitor.thaw()
        site.shell(f"mv {RDMA_CM}.away {RDMA_CM}")
    assert [one.statuses for one in outcomes] == [[MOUNT_FAILED]] * 2
    assert outcomes[0].log[-1] == outcomes[1].log[-1]
    lines = [line for one in outcomes for line in one.log if "INFO mounting" in line]
    assert len(lines) == 1
