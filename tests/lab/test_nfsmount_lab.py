# SPDX-License-Identifier: GPL-2.0-or-later
"""Mode nfsmount: stock VDSM mounts, mount.nfs reads our file, and that is all.

VDSM is the strict double, or VDSM_SOURCE's tree, with its own connection class.
What is asserted here is what docs/nfsmount-mode.md says.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon, local_path

CHECKOUT = Path(__file__).resolve().parents[2]
MOUNT_FAILED = {100, 477}  # VDSM before 4.50.3 has the latter
FILE = "/etc/nfsmount.conf.d/50-ovirt-rdma.conf"
NAMED, OTHER = "10.99.0.1:/srv/rdma", "10.99.0.1:/srv/other"

# connectStorageServer of an unchanged VDSM: a JSON definition a line.
STOCK_VDSM = """
import json, sys, time
from pathlib import Path
from vdsm_under_test import load_vdsm

vdsm = load_vdsm()
base = Path("/rhev/data-center/mnt")
base.mkdir(parents=True, exist_ok=True)
with vdsm.fresh(base), vdsm.real_mounts():
    for line in sys.stdin:
        definition = json.loads(line)
        started = time.monotonic()
        [(connection, status)] = vdsm.connect(definition)
        seconds = time.monotonic() - started
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        place = connection._mountCon.getMountObj().fs_file
        found = [m.rpartition(" ")[2] for m in mounts if f" {place} " in m]
        print(json.dumps([status, seconds, found]), flush=True)
        if not status:
            vdsm.disconnect(definition)
"""


@dataclass(frozen=True)
class Mounted:
    """What stock VDSM reports, after how many seconds, and the mount's options."""

    status: int
    seconds: float
    mounts: list[str]

    @property
    def transport(self) -> str:
        """As ``rdma:20049`` or ``tcp``."""
        (options,) = self.mounts
        words = dict(word.partition("=")[::2] for word in options.split(","))
        port = words.get("port")
        return f"{words['proto']}:{port}" if port else words["proto"]


class Site:
    """The lab, the command, and a stock VDSM.

    ``enabled``: the mode is on, and the file is ours; ``ready``: with RULE.
    """

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        self.host = VdsmDaemon(lab.hypervisor)
        self.enabled = self.ready = False

    def make_ready(self) -> None:
        if not self.enabled:
            # Another test's mode may be on, or a file of ours be edited.
            self.host.command("disable")
            self.shell(f"rm -rf {FILE}* /etc/ovirt-rdma/enabled")
        if not self.ready or not self.enabled:
            self.load(RULE)
        if not self.enabled:
            result = self.host.command("enable", "--mode", "nfsmount")
            assert result.exit_code == 0, result
        self.enabled = self.ready = True

    def connect(self, *definitions: dict[str, str]) -> list[Mounted]:
        whole = [
            {"id": "1", "protocol_version": "4.2", "connection": NAMED, **definition}
            for definition in definitions
        ]
        environment = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"}
        if "VDSM_SOURCE" in os.environ:
            environment["VDSM_SOURCE"] = os.environ["VDSM_SOURCE"]
        result = self.lab.hypervisor.run(
            [sys.executable, "-c", STOCK_VDSM],
            input="".join(json.dumps(one) + "\n" for one in whole),
            environment=environment,
            timeout=240,
            check=True,
        )
        return [Mounted(*json.loads(line)) for line in result.stdout.splitlines()]

    def shell(self, line: str) -> str:
        return self.lab.hypervisor.run(line, check=True).stdout

    def load(self, *rules: str) -> None:
        """Load a policy of these rules."""
        self.ready = False
        self.host.write_policy(policy(*rules))
        result = self.host.command("policy", "load")
        assert result.exit_code == 0, result

    def write_sections(self, *places: str) -> None:
        """Write the file by hand, as no policy of ours makes it."""
        self.enabled = False
        text = "".join(f'[ MountPoint "{p}" ]\nProto=rdma\nRetry=0\n' for p in places)
        self.lab.hypervisor.run(f"cat > {FILE}", input=text, check=True)


def policy(*rules: str) -> str:
    listed = "".join(f"    - {{{rule}, transport: require-rdma}}\n" for rule in rules)
    return f"version: 1\nnfs:\n  rules:\n{listed}"


RULE = "name: vm, server: 10.99.0.1, path: /srv/rdma"


@pytest.fixture(scope="module")
def whole_site(two_guests: Topology) -> Iterator[Site]:
    for path in ("/srv/rdma", "/srv/other"):
        two_guests.nfs.add_export(path)
    site = Site(two_guests)
    yield site
    site.host.command("disable")
    site.shell(f"rm -rf {FILE}* /etc/ovirt-rdma/enabled /var/lib/ovirt-rdma")


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """A Site that is ready; afterwards nothing is mounted."""
    whole_site.make_ready()
    yield whole_site
    whole_site.shell("umount -a -t nfs,nfs4 -f -l; rm -rf /rhev/data-center/mnt/*")


@pytest.fixture
def without_listener(site: Site) -> Iterator[Site]:
    site.lab.nfs.restart(rdma_port=None)
    yield site
    site.lab.nfs.restart()


# What the engine has in the storage connection's mount options, and what comes of it
# where the file gives no port. The bare word comes before our proto=, which wins.
ENGINE = {
    "": "rdma:20049",
    "tcp": "rdma:20049",
    "rdma,port=20049": "rdma:20049",
    "proto=tcp": "tcp",
}


VERSIONS = ("3", "4.2", "auto")


@pytest.fixture(scope="module")
def matrix(whole_site: Site) -> dict[tuple[str, str], Mounted]:
    """What comes of NAMED by NFS version and the engine's mount options."""
    whole_site.make_ready()
    cases = [(version, engine) for version in VERSIONS for engine in ENGINE]
    found = whole_site.connect(
        *({"protocol_version": v, "mnt_options": engine} for v, engine in cases)
    )
    return dict(zip(cases, found))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("engine", ENGINE)
def test_what_the_engine_sends_decides_with_the_file(
    matrix: dict[tuple[str, str], Mounted], version: str, engine: str
) -> None:
    found = matrix[version, engine]
    assert (found.status, found.transport) == (0, ENGINE[engine]), found
    # VDSM's own options are all there.
    for word in ("soft", "nosharecache", "timeo=100", "retrans=3"):
        assert word in found.mounts[0].split(",")


def test_an_export_that_no_rule_names_is_stock(site: Site) -> None:
    stock, engine = site.connect(
        {"connection": OTHER},
        {"connection": OTHER, "mnt_options": "rdma,port=20049"},
    )
    assert (stock.status, stock.transport) == (0, "tcp")
    assert (engine.status, engine.transport) == (0, "rdma:20049")


def test_a_port_in_the_file_leaves_no_way_to_tcp(site: Site) -> None:
    site.lab.nfs.restart(rdma_port=20050)
    try:
        site.load(f"{RULE}, port: 20050")
        assert "Port=20050\n" in site.shell(f"cat {FILE}")
        plain, tcp = site.connect({}, {"mnt_options": "proto=tcp"})
    finally:
        site.lab.nfs.restart()
    assert (plain.status, plain.transport) == (0, "rdma:20050")
    assert tcp.status in MOUNT_FAILED


def test_names(site: Site) -> None:
    site.load("server: server, path: /srv/rdma")  # has addresses of both families
    (both,) = site.connect({"connection": "server:/srv/rdma"})
    assert both.transport == "rdma:20049"
    site.shell("echo fd00:99::1 server6 >> /etc/hosts")
    site.load("server: server6, path: /srv/rdma")
    found = site.connect(
        *(
            {"connection": "server6:/srv/rdma", "protocol_version": version}
            for version in ("3", "4.2")
        )
    )
    assert [one.transport for one in found] == ["rdma6:20049"] * 2


def test_options_of_the_rule_reach_the_kernel(site: Site) -> None:
    site.load(f'{RULE}, options: "noac,rsize=65536,hard"')
    ours, engine = site.connect({}, {"mnt_options": "rsize=32768"})
    for word in ("noac", "rsize=65536", "hard"):
        assert word in ours.mounts[0].split(",")
    # What the engine has, stays.
    assert "rsize=32768" in engine.mounts[0].split(",")


def test_nfs_list_proves_the_mount(site: Site) -> None:
    place = local_path(NAMED)
    site.shell(f"mkdir -p {place}; mount -t nfs -o soft,nfsvers=4.2 {NAMED} {place}")
    listed = site.host.command("nfs", "list", "--exit-code")
    assert listed.exit_code == 0, listed
    assert NAMED in listed.stdout
    assert "ok" in listed.stdout
    site.shell(f"umount {place}; mount -t nfs -o soft,proto=tcp {NAMED} {place}")
    assert site.host.command("nfs", "list", "--exit-code").exit_code == 3


def test_a_server_without_listener_is_tried_once(without_listener: Site) -> None:
    for one in without_listener.connect({}, {"protocol_version": "3"}):
        assert one.status in MOUNT_FAILED
        # Without Retry=0, mount.nfs tries for two minutes.
        assert one.seconds < 110


def test_a_server_that_is_absent_is_tried_once(site: Site) -> None:
    absent = "10.99.0.77:/srv/rdma"
    site.load("server: 10.99.0.77, path: /srv/rdma")
    times = {"timeout": "30", "retrans": "2", "connection": absent}
    for one in site.connect(times, {**times, "protocol_version": "3"}):
        assert one.status in MOUNT_FAILED
        assert one.seconds < 110


def test_status_and_disable(site: Site) -> None:
    shown = site.host.command("status").stdout
    assert "yes, mode nfsmount" in shown
    assert f"{FILE}: as the policy says, 1 export; vdsmd needs no restart" in shown
    site.enabled = False
    assert site.host.command("disable").exit_code == 0
    assert site.shell(f"ls -d {FILE} /etc/ovirt-rdma/enabled 2>&- || true") == ""
    (found,) = site.connect({})
    assert found.transport == "tcp"


class TestWhatNfsUtilsCannot:
    """The guests have nfs-utils 2.6.2."""

    def test_two_sections_are_refused_before_anything_changes(self, site: Site) -> None:
        before = site.shell(f"cat {FILE} /var/lib/ovirt-rdma/policy.json")
        site.host.write_policy(policy(RULE, "server: 10.99.0.1, path: /srv/other"))
        refused = site.host.command("policy", "load")
        assert refused.exit_code == 4
        assert f'would not read: [mountpoint "{local_path(NAMED)}"]' in refused.stderr
        assert site.shell(f"cat {FILE} /var/lib/ovirt-rdma/policy.json") == before

    def test_and_rightly_so(self, site: Site) -> None:
        site.write_sections(local_path(NAMED), local_path(OTHER))
        first, last = site.connect({}, {"connection": OTHER})
        assert (first.transport, last.transport) == ("tcp", "rdma:20049")

    def test_status_sees_a_section_of_another_that_takes_the_place_of_ours(
        self, site: Site
    ) -> None:
        other = "/etc/nfsmount.conf.d/60-other.conf"
        text = '[ MountPoint "/mnt" ]\\nProto=tcp\\n'
        site.shell(f"printf '{text}' > {other}")
        try:
            shown = site.host.command("status").stdout
        finally:
            site.shell(f"rm {other}")
        assert "not as the policy says" in shown
        assert "mount.nfs does not read" in shown

    def test_a_bracket_in_a_section_ends_every_mount_of_the_host(
        self, site: Site
    ) -> None:
        """So a rule with an IPv6 address is refused, and never written."""
        site.write_sections(local_path("[fd00:99::1]:/srv/rdma"))
        (other,) = site.connect({"connection": OTHER})
        assert other.status in MOUNT_FAILED
        site.shell(f"rm {FILE}")
        site.host.write_policy(policy('server: "fd00:99::1", path: /srv/rdma'))
        refused = site.host.command("policy", "load")
        assert refused.exit_code == 4
        assert "give the server a host name" in refused.stderr
