# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the real chain in a guest: ExecStart, daemonAdapter, launcher, VDSM's main().

It runs as uid 36, with Debian's Python and syslog, also with missing or damaged parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import installed_host, vdsm_packages
from lab.topology import Topology
from lab.vdsm_daemon import About, VdsmDaemon, local_path
from ovirt_rdma.host import __version__
from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    POLICY_COPY,
    POLICY_JSON,
    STOCK_VDSMD,
)

pytestmark = pytest.mark.kernels("6.12")

POLICY = """\
version: 1
nfs:
  defaults: {readiness_timeout: 30}
  rules:
    - {name: data, server: 10.99.0.1, path: /srv/data, transport: require-rdma}
"""
OURS, STOCK = "ovirt_rdma.storage.vdsm.connection", "vdsm.storage.storageServer"
INSTEAD = "warn: ovirt-rdma: starting stock vdsmd instead: "
MADE_BY = f"notice: ovirt-rdma: NFS connections are made by ovirt-rdma {__version__}"


@pytest.fixture(scope="module")
def whole(one_guest: Topology) -> Iterator[VdsmDaemon]:
    vdsmd = VdsmDaemon(one_guest.hypervisor)
    vdsmd.load_policy(POLICY)
    yield vdsmd
    vdsmd.guest.run(f"rm -rf {DROPIN_LINK} {ENABLED} {POLICY_JSON}*", check=True)


@pytest.fixture
def vdsmd(whole: VdsmDaemon) -> Iterator[VdsmDaemon]:
    """Everything is installed, vdsmd is not running; tests restore what they change."""
    yield whole
    whole.stop()


@contextmanager
def damaged(vdsmd: VdsmDaemon, damage: str, undo: str) -> Iterator[None]:
    vdsmd.guest.run(damage, check=True)
    try:
        yield
    finally:
        vdsmd.guest.run(undo, check=True)


def away(*paths: str) -> tuple[str, str]:
    """Remove files or folders, and restore them."""
    there = [f"mv {path} {path}.away" for path in paths]
    back = [f"mv {path}.away {path}" for path in paths]
    return " && ".join(there), " && ".join(back)


def mode(path: str, damaged: str, whole: str) -> tuple[str, str]:
    return f"chmod {damaged} {path}", f"chmod {whole} {path}"


@pytest.fixture(scope="module")
def stock(whole: VdsmDaemon) -> About:
    """Return how stock vdsmd is started."""
    with damaged(whole, *away(DROPIN_LINK)):
        whole.start()
        try:
            assert whole.syslog() == []
            return whole.about()
        finally:
            whole.stop()


def test_stock_is_started_without_us(stock: About) -> None:
    assert (stock.program, stock.nfs_class) == (STOCK_VDSMD, STOCK)
    assert (stock.uid, stock.nice, stock.children) == (36, -20, 0)


def test_the_launcher_gives_vdsm_our_class_and_nothing_else(
    vdsmd: VdsmDaemon, stock: About, one_guest: Topology
) -> None:
    vdsmd.start()
    assert vdsmd.about() == dataclasses.replace(stock, program=LAUNCHER, nfs_class=OURS)
    assert vdsmd.syslog() == [MADE_BY]
    outcome = vdsmd.connect({"connection": one_guest.export})
    assert outcome.statuses == [0], outcome
    assert "mounted over rdma, proven" in outcome.log[-1]
    place = local_path(one_guest.export)
    vdsmd.guest.run(f"touch {place}/note", uid=36, check=True)
    assert vdsmd.disconnect({"connection": one_guest.export}).statuses == [0]
    assert vdsmd.guest.run(f"[ -e {place} ]").exit_code != 0


def test_package_gone_with_the_link_left_is_stock(
    vdsmd: VdsmDaemon, stock: About, one_guest: Topology
) -> None:
    folder = LAUNCHER.rpartition("/")[0]
    with damaged(vdsmd, *away(folder, DROPIN_SOURCE, installed_host.LIBRARY)):
        vdsmd.guest.run(f"[ -h {DROPIN_LINK} ]", check=True)
        vdsmd.start()
        assert vdsmd.about() == stock
        assert vdsmd.syslog() == []
        definition = {"connection": one_guest.export, "mnt_options": "rdma,port=20049"}
        assert vdsmd.connect(definition).statuses == [0]
        assert vdsmd.disconnect(definition).statuses == [0]
        vdsmd.stop()


SERVER = f"{vdsm_packages.VDSM}/vdsm/storage/storageServer.py"
FAULTS = {
    "no file": (away(LAUNCHER), "is missing, is not whole, or may not be run"),
    "not for vdsm": (mode(LAUNCHER, "700", "755"), "may not be run"),
    "no package": (away(installed_host.LIBRARY), "No module named 'ovirt_rdma'"),
    "unreadable package": (
        # What is compiled of it can be read without it.
        mode(
            f"{installed_host.LIBRARY}/host/{{,__pycache__/}}export.*py*", "600", "644"
        ),
        "PermissionError: [Errno 13] Permission denied",
    ),
    "unreadable marker": (
        mode(ENABLED.rpartition("/")[0], "700", "755"),
        f"Permission denied: '{ENABLED}'",
    ),
    "unknown VDSM": (
        (f"echo 'NFSConnection.connect_all = 0' >> {SERVER}", f"sed -i '$d' {SERVER}"),
        "NFSConnection has no connect_all()",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_launcher_is_stock_and_one_line(
    vdsmd: VdsmDaemon, stock: About, fault: str
) -> None:
    change, words = FAULTS[fault]
    with damaged(vdsmd, *change):
        vdsmd.start()
        assert vdsmd.about() == stock
    (line,) = vdsmd.syslog()
    assert line.startswith(INSTEAD)
    assert words in line


def test_an_unreadable_policy_is_followed_by_its_copy(
    vdsmd: VdsmDaemon, one_guest: Topology
) -> None:
    with damaged(vdsmd, *mode(POLICY_JSON, "600", "644")):
        vdsmd.start()
        outcome = vdsmd.connect({"connection": one_guest.export})
    assert vdsmd.about().nfs_class == OURS
    made_by, line = vdsmd.syslog()
    assert made_by == MADE_BY
    assert "cannot be read: Permission denied; its copy is used: policy sha256:" in line
    assert outcome.statuses == [0], outcome
    assert "mounted over rdma, proven" in outcome.log[-1]
    assert vdsmd.disconnect({"connection": one_guest.export}).statuses == [0]


def test_an_unreadable_policy_without_its_copy_is_our_class_without_rules(
    vdsmd: VdsmDaemon, one_guest: Topology
) -> None:
    unreadable = (
        f"chmod 600 {POLICY_JSON} && mv {POLICY_COPY} {POLICY_COPY}.away",
        f"chmod 644 {POLICY_JSON} && mv {POLICY_COPY}.away {POLICY_COPY}",
    )
    with damaged(vdsmd, *unreadable):
        vdsmd.start()
        outcome = vdsmd.connect({"connection": one_guest.export})
    assert vdsmd.about().nfs_class == OURS
    made_by, line = vdsmd.syslog()
    assert made_by == MADE_BY
    assert "cannot be read: Permission denied; no policy is in force" in line
    assert outcome.statuses == [0], outcome
    assert "the stored policy cannot be read" in outcome.log[0]
    mounts = vdsmd.guest.run("cat /proc/mounts").stdout
    assert f"{local_path(one_guest.export)} nfs4" in mounts
    assert "proto=rdma" not in mounts
    assert vdsmd.disconnect({"connection": one_guest.export}).statuses == [0]
