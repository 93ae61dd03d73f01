# SPDX-License-Identifier: GPL-2.0-or-later
"""Test real mounts of the connection class: real kernel, Soft-RoCE, real server.

VDSM is the strict double, or VDSM_SOURCE's tree; its mounts are real.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Optional

import pytest

from lab import modules
from lab.topology import HYPERVISOR_ADDRESSES, NETDEV, Topology
from lab.vdsm_daemon import Outcome, VdsmDaemon, local_path
from ovirt_rdma.storage import rdma_cm_probe

ACCESS, MOUNT_FAILED = 469, 477
V4, V6 = "10.99.0.1", "[fd00:99::1]"

# One export tree; the path selects the rule, and IPv6 selects another one. An emulated
# guest may need much more than the default timeout of 2 s.
POLICY = """\
version: 1
nfs:
  defaults: {failure_cache: 5, readiness_timeout: 30}
  rules:
    - {name: absent, server: 10.99.0.77, transport: require-rdma, readiness_timeout: 2}
    - {name: require, server: 10.99.0.0/24, path: /srv/require, transport: require-rdma}
    - {name: prefer, server: 10.99.0.1, path: /srv/prefer*, transport: prefer-rdma}
    - {name: tcp, server: 10.99.0.1, path: /srv/tcp, transport: tcp}
    - {name: tcp6, server: "fd00:99::1", path: /srv/require, transport: tcp}
    - {name: require6, server: "fd00:99::/64", transport: require-rdma}
"""
# Slow, or the same in another version or direction.
LONG = pytest.mark.faults
# The fixture vdsmd starts with the policy and these.
EXPORT_PATHS = ("/srv/require", "/srv/prefer", "/srv/tcp", "/srv/stock", "/srv/private")


@dataclass
class Site:
    """The lab with our class in VDSM on the hypervisor."""

    lab: Topology
    vdsmd: VdsmDaemon

    def connect(self, path: str, server: str = V4, **keys: str) -> Outcome:
        return self.vdsmd.connect({"connection": f"{server}:{path}", **keys})

    def disconnect(self, path: str, server: str = V4) -> None:
        export = {"connection": f"{server}:{path}"}
        assert self.vdsmd.disconnect(export).statuses == [0]

    def shell(self, line: str) -> str:
        return self.lab.hypervisor.run(line, check=True).stdout

    def mounted(self, path: str, server: str = V4) -> list[str]:
        """Return the super options of the mounts at the export's path."""
        place = re.escape(local_path(f"{server}:{path}"))
        info = self.shell("cat /proc/self/mountinfo")
        return re.findall(rf" {place} .* - nfs4? \S+ (\S+)", info)

    def transports(self, path: str, server: str = V4) -> list[str]:
        """Return the mountstats of the mount at the export's path."""
        stats = self.shell("cat /proc/self/mountstats")
        place = re.escape(local_path(f"{server}:{path}"))
        (block,) = re.findall(
            rf"mounted on {place} .*?\n(.*?)(?=\ndevice |\Z)", stats, re.S
        )
        return re.findall(r"xprt:\t(\w+) ", block)


@pytest.fixture
def site(two_guests: Topology, vdsmd: VdsmDaemon) -> Site:
    """The lab in its normal state; nothing is mounted afterwards."""
    return Site(two_guests, vdsmd)


@pytest.fixture
def without_listener(site: Site) -> Iterator[Site]:
    site.lab.nfs.restart(rdma_port=None)
    yield site
    site.lab.nfs.restart()


@pytest.fixture
def without_rdma_device(site: Site) -> Iterator[Site]:
    site.lab.fabric.take_down(site.lab.hypervisor, NETDEV)
    yield site
    site.lab.fabric.bring_up(site.lab.hypervisor, NETDEV, HYPERVISOR_ADDRESSES)


@pytest.fixture
def without_module(site: Site) -> Iterator[Site]:
    with modules.hidden(site.lab.hypervisor, "rpcrdma"):
        yield site


@pytest.mark.parametrize(
    "version",
    ["3", pytest.param("4.0", marks=LONG), pytest.param("4.1", marks=LONG), "4.2"],
)
@pytest.mark.parametrize(
    "path, transport", [("/srv/require", "rdma"), ("/srv/tcp", "tcp")]
)
def test_each_version_over_each_transport(
    site: Site, version: str, path: str, transport: str
) -> None:
    outcome = site.connect(path, protocol_version=version)
    assert outcome.statuses == [0], outcome
    assert f"mounted over {transport}, proven" in "\n".join(outcome.log)
    (options,) = site.mounted(path)
    assert f"proto={transport}," in options
    assert f"vers={version}," in options
    assert ("port=20049" in options) is (transport == "rdma")
    assert site.transports(path) == [transport]
    place = local_path(f"{V4}:{path}")
    text = f"version {version} over {transport}"
    site.lab.hypervisor.run(f"cat > {place}/note", input=text, uid=36, check=True)
    assert site.shell(f"cat {place}/note") == text
    site.disconnect(path)
    assert site.mounted(path) == []
    assert site.shell("ls /rhev/data-center/mnt") == ""


@pytest.mark.parametrize("version", ["3", "4.2"])
def test_ipv6_server(site: Site, version: str) -> None:
    outcome = site.connect("/srv/stock", V6, protocol_version=version)
    assert outcome.statuses == [0], outcome
    (options,) = site.mounted("/srv/stock", V6)
    assert "proto=rdma6,port=20049" in options


@pytest.mark.parametrize(
    "write_by, read_by", [(V4, V6), pytest.param(V6, V4, marks=LONG)]
)
def test_data_is_the_same_over_both_transports(
    site: Site, write_by: str, read_by: str
) -> None:
    # The same export: over RDMA by its IPv4 address, over TCP by its IPv6 one.
    path, size = "/srv/require", "bs=1M count=16"
    assert site.connect(path, write_by).statuses == [0]
    out, back = (local_path(f"{server}:{path}") for server in (write_by, read_by))
    site.shell(f"dd if=/dev/urandom of=/run/data {size} status=none")
    site.shell(f"dd if=/run/data of={out}/data {size} conv=fsync status=none")
    site.disconnect(path, write_by)
    assert site.connect(path, read_by).statuses == [0]
    assert site.transports(path, read_by) == ["rdma" if read_by == V4 else "tcp"]
    sums = site.shell(f"sha256sum < /run/data; sha256sum < {back}/data").split("\n")
    assert sums[0] == sums[1] != ""


class TestServerWithoutListener:
    @pytest.mark.parametrize("version", ["3", "4.2"])
    def test_require_is_refused_in_seconds(
        self, without_listener: Site, version: str
    ) -> None:
        outcome = without_listener.connect("/srv/require", protocol_version=version)
        assert outcome.statuses == [MOUNT_FAILED]
        # mount.nfs, which may take minutes, was not run.
        assert not any("INFO mounting" in line for line in outcome.log)
        assert "refuses RDMA connections on port 20049" in outcome.log[-1]
        assert "rdma=y" in outcome.log[-1]
        assert without_listener.mounted("/srv/require") == []

    @pytest.mark.parametrize("version", ["3", pytest.param("4.2", marks=LONG)])
    def test_prefer_falls_back_loudly(
        self, without_listener: Site, version: str
    ) -> None:
        outcome = without_listener.connect("/srv/prefer", protocol_version=version)
        assert outcome.statuses == [0], outcome
        assert any("FALLING BACK TO TCP" in line for line in outcome.log)
        assert without_listener.transports("/srv/prefer") == ["tcp"]
        listed = without_listener.vdsmd.command("nfs", "list", "--exit-code")
        assert listed.exit_code == 3
        assert "degraded" in listed.stdout

    @LONG
    def test_without_rdma_ucm_one_mount_decides_for_all(
        self, without_listener: Site
    ) -> None:
        site = without_listener
        device = "/dev/infiniband/rdma_cm"
        site.shell(f"mv {device} {device}.away")
        try:
            outcome = site.vdsmd.connect(
                *({"connection": f"{V4}:{p}"} for p in ("/srv/require", "/srv/prefer"))
            )
            site.shell("sleep 5")
            again = site.connect("/srv/require")
        finally:
            site.shell(f"mv {device}.away {device}; sleep 5")
        assert outcome.statuses == [MOUNT_FAILED, 0]
        log = "\n".join(outcome.log)
        assert "readiness is unknown (this host has no RDMA CM: /dev/inf" in log
        assert "an RDMA mount of 10.99.0.1 failed" in log
        assert log.count("mounting 10.99.0.1:/srv/prefer") == 1
        # When the failure has expired, the mount is tried again.
        assert again.statuses == [MOUNT_FAILED]
        assert any("INFO mounting" in line for line in again.log)


class TestHypervisorLacksSomething:
    def test_no_rdma_device(self, without_rdma_device: Site) -> None:
        outcome = without_rdma_device.connect("/srv/require")
        assert outcome.statuses == [MOUNT_FAILED]
        assert "this host has no RDMA device" in outcome.log[-1]
        outcome = without_rdma_device.connect("/srv/prefer")
        assert outcome.statuses == [0], outcome
        assert without_rdma_device.transports("/srv/prefer") == ["tcp"]

    def test_no_module(self, without_module: Site) -> None:
        outcome = without_module.connect("/srv/require")
        assert outcome.statuses == [MOUNT_FAILED]
        assert "has no rpcrdma module" in outcome.log[-1]
        outcome = without_module.connect("/srv/prefer")
        assert outcome.statuses == [0], outcome
        assert without_module.transports("/srv/prefer") == ["tcp"]

    def test_a_tcp_rule_and_stock_do_not_care(self, without_rdma_device: Site) -> None:
        assert without_rdma_device.connect("/srv/tcp").statuses == [0]
        assert without_rdma_device.connect("/srv/stock").statuses == [0]


def test_absent_server_costs_seconds(site: Site) -> None:
    outcome = site.connect("/srv/require", "10.99.0.77")
    assert outcome.statuses == [MOUNT_FAILED]
    assert "did not answer an RDMA connection within 2 s" in outcome.log[-1]
    assert not any("INFO mounting" in line for line in outcome.log)


def test_existing_tcp_mount_is_reported_and_left(site: Site) -> None:
    place = local_path(f"{V4}:/srv/require")
    site.shell(f"mkdir -p {place} && mount -t nfs -o tcp {V4}:/srv/require {place}")
    outcome = site.connect("/srv/require")
    assert outcome.statuses == [0], outcome
    (line,) = outcome.log
    assert "already mounted over tcp" in line
    assert len(site.mounted("/srv/require")) == 1
    listed = site.vdsmd.command("nfs", "list", "--exit-code")
    assert listed.exit_code == 3
    assert "runs over tcp, but rule 'require' says require-rdma" in listed.stdout


def test_two_connects_of_one_export_mount_once(site: Site) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(site.connect, "/srv/require") for _ in range(2)]
        outcomes = [one.result() for one in both]
    assert [outcome.statuses for outcome in outcomes] == [[0], [0]], outcomes
    assert len(site.mounted("/srv/require")) == 1
    mounting = [line for o in outcomes for line in o.log if "INFO mounting" in line]
    assert len(mounting) == 1


@LONG
def test_probes_at_the_same_time_are_not_refused(site: Site) -> None:
    # To the server they look like stale connections of each other.
    probe = f"/usr/bin/python3 -I {rdma_cm_probe.__file__} {V4} 20049"
    three = f"for probe in 1 2 3; do {probe} & done; wait"
    said = site.shell(f"for round in 1 2 3 4; do {three}; done")
    assert said.count('"listening"') == 12, said


@LONG
def test_a_question_whose_end_was_lost_refuses_no_mount(site: Site) -> None:
    """As after a server was frozen: it waits for the end of the old question."""
    probe = f"/usr/bin/python3 -I {rdma_cm_probe.__file__} {V4} 20049"
    cut, joined = (
        f"tc qdisc {what} dev {NETDEV} root netem loss 100%" for what in ("add", "del")
    )
    known = "rdma res show cm_id | grep -c CONNECT"
    server = site.lab.server
    assert '"listening"' in site.shell(probe)
    before = server.run(known).stdout.strip()
    server.run(cut, check=True)
    try:
        question = site.lab.hypervisor.start(f"exec {probe}")
        server.run(f"until [ $({known}) -gt {before} ]; do sleep 0.1; done", check=True)
        site.shell(cut)
        question.signal()
        question.wait(60)
        site.shell(joined)
    finally:
        server.run(joined, check=True)
    assert '"stale"' in site.shell(probe)
    outcome = site.connect("/srv/require")
    assert outcome.statuses == [0], outcome
    assert site.transports("/srv/require") == ["rdma"]
    assert "readiness is unknown (10.99.0.1 waits for the end of an earlier" in str(
        outcome.log
    )
    # 16 times 4.3 s later.
    site.lab.hypervisor.run(
        f"until {probe} | grep listening; do sleep 2; done", timeout=300, check=True
    )


@pytest.mark.parametrize(
    "engine, transport", [("rdma,port=20049", "rdma"), (None, "tcp")]
)
def test_export_without_rule_is_stock(
    site: Site, engine: Optional[str], transport: str
) -> None:
    keys = {"mnt_options": engine} if engine else {}
    outcome = site.connect("/srv/stock", **keys)
    assert outcome.statuses == [0], outcome
    assert site.transports("/srv/stock") == [transport]
    assert not any("ovirt" in line or "rule" in line for line in outcome.log)


def test_path_that_is_not_exported_does_not_fall_back(site: Site) -> None:
    outcome = site.connect("/srv/prefer-nothing")
    assert outcome.statuses == [MOUNT_FAILED]
    assert "does not export this path" in outcome.log[-1]
    assert not any("FALLING BACK" in line for line in outcome.log)


def test_permissions_of_the_export_stay_469(site: Site) -> None:
    folder = "/nfsroot/srv/require"
    site.lab.server.run(f"chown 0:0 {folder} && chmod 700 {folder}", check=True)
    try:
        outcome = site.connect("/srv/require")
    finally:
        site.lab.server.run(f"chown 36:36 {folder} && chmod 755 {folder}", check=True)
    assert outcome.statuses == [ACCESS]
    assert site.mounted("/srv/require") == []


@pytest.mark.parametrize("version", ["3", "auto"])
def test_nfs_check_says_ready(site: Site, version: str) -> None:
    export = f"{V4}:/srv/require"
    checked = site.vdsmd.command("nfs", "check", export, "--nfs-version", version)
    assert checked.exit_code == 0, checked
    assert checked.stdout.splitlines()[-1] == f"{export} is ready for RDMA."
    assert ("mountd" in checked.stdout) is (version == "3")


@pytest.mark.parametrize(
    "path", ["/srv/require", pytest.param("/srv/prefer", marks=LONG), "/srv/tcp"]
)
def test_mount_options_are_what_vdsm_passes(site: Site, path: str) -> None:
    shown = site.vdsmd.command(
        "nfs", "mount-options", f"{V4}:{path}", "--nfs-version", "4.2", "-o", "json"
    )
    assert shown.exit_code == 0, shown
    assert site.connect(path).statuses == [0]
    (options,) = site.mounted(path)
    asked = re.search(r'"options": "(.*)"', shown.stdout)[1].split(",")
    for word in ("soft", "nosharecache", "timeo=100", "retrans=3"):
        assert word in asked
        assert word in options.split(",")
    proto = next(word for word in asked if word.startswith("proto="))
    assert proto in options.split(",")
