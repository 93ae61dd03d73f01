# SPDX-License-Identifier: GPL-2.0-or-later
"""Test exports of a server that has mounts over the other transport."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.storage.vdsm_site import MOUNT_FAILED, NAS, Site

from ovirt_rdma.host import paths
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.storage.mounts import review_all

pytestmark = pytest.mark.hypervisor

VM, ISO = f"{NAS}:/vm", f"{NAS}:/iso"
ONE_CONNECTION = (
    f"{ISO} is mounted over TCP, and the kernel uses one connection for all NFS 4.2 "
    "mounts of a server"
)
AGREE = "choose one transport for all NFS 4 exports of the server in the policy"


@pytest.fixture(autouse=True)
def place_of_mounts(site: Site, monkeypatch) -> None:
    place = Path(site.local_path(VM)).parent
    monkeypatch.setattr(paths, "VDSM_MOUNTS", str(place))


@pytest.fixture
def mixed(site: Site) -> Site:
    """``/vm`` gets the rule of the test; ``/iso`` is mounted over TCP, as stock."""
    assert site.connect(ISO) == [0]
    assert site.kernel.mounted() == [(ISO, "tcp")]
    return site


def vm_rule(site: Site, transport: str, **more) -> None:
    rule = NfsRule(1, "vm", NAS, "/vm*", transport, **more)
    site.policy = Policy(nfs=NfsPolicy((rule,)))


def judged(site: Site, export: str):
    reviews = review_all(site.root.reader().mount_facts(cm_ids=False), site.policy)
    return next(found for found in reviews if found.mount.source == export)


def test_require_is_taken_back_and_the_reason_is_right(mixed, caplog):
    vm_rule(mixed, "require-rdma")
    assert mixed.connect(VM) == [MOUNT_FAILED]
    assert mixed.kernel.mounted() == [(ISO, "tcp")]
    assert f"because {ONE_CONNECTION}; unmounted again; fix: {AGREE}" in caplog.text
    assert "(3, or 4.1 beside 4.2); then put the host into maintenance" in caplog.text
    assert "nfsmount.conf" not in caplog.text


def test_prefer_is_marked_and_the_reason_is_right(mixed, caplog):
    vm_rule(mixed, "prefer-rdma")
    assert mixed.connect(VM) == [0]
    assert mixed.kernel.mounted() == [(ISO, "tcp"), (VM, "tcp")]
    assert f"because {ONE_CONNECTION}; this mount is degraded; fix: {AGREE}" in (
        caplog.text
    )
    (mark,) = mixed.root.reader().degraded_marks([])
    assert (mark.reason, mark.fix) == (ONE_CONNECTION, "")
    found = judged(mixed, VM)
    assert found.reason == ONE_CONNECTION
    assert found.fix.startswith(AGREE)
    assert found.fix.count(AGREE) == 1


def test_a_tcp_rule_that_comes_up_over_rdma_is_told(site, caplog):
    iso = NfsRule(1, "iso", NAS, "/iso", "tcp")
    vm = NfsRule(2, "vm", NAS, "/vm", "require-rdma")
    site.policy = Policy(nfs=NfsPolicy((iso, vm)))
    assert site.connect(VM) == [0]
    assert site.connect(ISO) == [0]
    assert site.kernel.mounted() == [(VM, "rdma"), (ISO, "rdma")]
    assert f"because {VM} is mounted over RDMA, and" in caplog.text
    (mark,) = site.root.reader().degraded_marks([])
    assert (mark.export, mark.transport) == (ISO, "rdma")
    found = judged(site, ISO)
    assert (found.verdict, found.proof.transport) == ("degraded", "rdma")
    assert found.fix.startswith(AGREE)
    assert judged(site, VM).verdict == "ok"


@pytest.mark.parametrize("versions", [("3", "4.2"), ("4.1", "4.2"), ("3", "3")])
def test_mounts_of_different_versions_keep_apart(site, versions):
    standing, fresh = versions
    assert site.connect(ISO, protocol_version=standing) == [0]
    vm_rule(site, "require-rdma")
    assert site.connect(VM, protocol_version=fresh) == [0]
    assert site.kernel.mounted() == [(ISO, "tcp"), (VM, "rdma")]


def test_of_a_mount_that_is_not_seen_any_more(mixed, caplog):
    mixed.kernel.detach(mixed.local_path(ISO))
    vm_rule(mixed, "require-rdma")
    assert mixed.connect(VM) == [MOUNT_FAILED]
    assert "such as one that was unmounted while in use; unmounted again" in caplog.text
    assert "fix: stop the programs that still use an unmounted" in caplog.text


def test_nfsmount_conf_is_blamed_where_it_is_its_port(mixed, nfsmount_conf, caplog):
    vm_rule(mixed, "require-rdma")
    assert mixed.connect(VM) == [MOUNT_FAILED]
    assert "which settings in nfsmount.conf can cause" in caplog.text


def test_a_mount_by_hand_that_is_in_the_way(site, caplog):
    site.kernel.mount_before(ISO, str(site.kernel.root / "by-hand"), "proto=tcp")
    vm_rule(site, "require-rdma")
    assert site.connect(VM) == [MOUNT_FAILED]
    assert f"fix: umount {site.kernel.root}/by-hand; then put" in caplog.text


def test_mounts_that_fell_back_together_are_healed_together(site):
    site.rule("prefer-rdma")
    site.network.rdma.clear()
    assert site.connect(VM, ISO) == [0, 0]
    found = judged(site, VM)
    # The policy is valid, but only all of them together can change to RDMA.
    assert (found.against, [m.source for m in found.others]) == ((), [ISO])
    assert found.reason == f"{NAS} refuses RDMA connections"
    assert AGREE not in found.fix


def test_one_that_was_there_before_vdsmd(mixed):
    place = mixed.local_path(VM)
    mixed.kernel.mount_before(VM, place, "vers=4.2,proto=rdma,port=20049")
    vm_rule(mixed, "prefer-rdma")
    assert mixed.connect(VM) == [0]
    (mark,) = mixed.root.reader().degraded_marks([])
    assert mark.reason.startswith("it was already mounted when vdsmd first found")
    assert mark.reason.endswith(f"; {ONE_CONNECTION}")
