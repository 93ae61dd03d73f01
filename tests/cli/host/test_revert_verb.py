# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``revert``, and ``status`` on what can be reverted."""

from __future__ import annotations

import errno

import pytest
from support.host.changes_wanted import MODES, POLICY, modes

from ovirt_rdma.host.changes import journal
from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.paths import JOURNAL, under

pytestmark = pytest.mark.hypervisor

BACK = """\
back     IPOIB-MODE-01/ib1  mtu of ib1: 65520 -> 2044; \
mode of ib1: connected -> datagram
back     IPOIB-MODE-01/ib0  mtu of ib0: 65520 -> 2044; \
mode of ib0: connected -> datagram
back     MODOPT-02/boot     /etc/modprobe.d/ovirt-rdma.conf: a file of 4 lines -> none
3 steps reverted on hv1 (run 2).
"""
DATAGRAM = ["datagram"] * 2


def settings_of(host):
    return boot_settings(Journal(host.root).ledger())


@pytest.fixture
def applied(ready):
    """A host on which three steps are applied."""
    assert ready("apply").code == 0
    return ready


def test_everything_is_set_back(applied):
    assert settings_of(applied)
    result = applied("revert")
    assert (result.code, result.out, result.err) == (0, BACK, "")
    assert modes(applied) == DATAGRAM
    assert [applied.fake.text(name, "mtu") for name in ("ib0", "ib1")] == ["2044"] * 2
    assert not under(applied.root, "/etc/modprobe.d/ovirt-rdma.conf").exists()
    assert not settings_of(applied)


def test_a_second_revert(applied):
    applied("revert")
    result = applied("revert")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Nothing to revert on hv1.\n"
    assert applied("revert", "-o", "json").document["run"] is None


def test_one_step(applied):
    result = applied("revert", "IPOIB-MODE-01/ib1")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(
        "1 step reverted on hv1 (run 2).\nnext: ovirt-rdma-host status\n"
    )
    assert modes(applied) == ["connected", "datagram"]


def test_a_step_that_is_not_held(applied):
    applied("revert", "IPOIB-MODE-01/ib9").refused(
        2,
        "step 'IPOIB-MODE-01/ib9' has no changes to revert",
        "fix: steps that can be reverted: MODOPT-02/boot, IPOIB-MODE-01/ib0, "
        "IPOIB-MODE-01/ib1",
    )
    applied("revert", "").refused(2, "step ''")
    applied("revert")
    applied("revert", "MODOPT-02/boot").refused(2, "neither has any other step")


def test_document(applied):
    document = applied("revert", "-o", "json").document
    assert (document["kind"], document["run"]) == ("revert", 2)
    assert document["steps"][2] == {
        "id": "MODOPT-02/boot",
        "outcome": "back",
        "told": ["/etc/modprobe.d/ovirt-rdma.conf: a file of 4 lines -> none"],
    }


def test_users_of_a_netdev(applied):
    applied.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    applied("revert").refused(
        4, "nfs: 10.0.0.1:/data at /mnt/data", "fix: put the host"
    )
    assert modes(applied) == ["connected"] * 2
    assert applied("revert", "--allow-link-down").code == 0
    assert modes(applied) == DATAGRAM


def test_what_someone_else_has_changed_is_left_and_said(applied):
    applied.fake.set_mtu("ib1", 4000)
    why = "mtu of ib1 was changed since by someone else (now 4000, ours 65520)"
    assert f"\n{why}; revert would not change it.\n" in applied("status").out
    document = applied("status", "-o", "json").document
    assert document["changes"]["kept"] == [why]
    result = applied("revert")
    assert result.code == 0
    assert f"left     IPOIB-MODE-01/ib1  {why}\n" in result.out
    assert "; 1 left, because someone else has changed it since.\n" in result.out
    assert "changes   nothing to revert" in applied("status").out


def test_what_is_left_is_not_counted_as_reverted(applied):
    under(applied.root, "/etc/modprobe.d/ovirt-rdma.conf").write_text("theirs\n")
    result = applied("revert", "MODOPT-02/boot")
    assert result.code == 0
    assert "0 steps reverted on hv1 (run 2); 1 left, because " in result.out


def test_what_cannot_be_set_back_stays_held(applied):
    applied.fake.refusals[MODES.format("ib0")] = errno.EROFS
    result = applied("revert")
    assert result.code == 1
    assert "\nleft     IPOIB-MODE-01/ib0  mode of ib0: " in result.out
    assert "\nfix: " in result.out
    assert "; 1 could not be reverted, and is still applied.\n" in result.out
    assert "changes   1 step applied" in applied("status").out
    applied.fake.refusals.clear()
    assert applied("revert").code == 0
    assert modes(applied) == DATAGRAM


def test_a_module_stays_loaded_and_that_is_said(ready):
    ready.follow("version: 1\nhost: {modules: [rdma_rxe]}\n")
    ready.fake.modules(loaded=("ib_ipoib",), available=("rdma_rxe",))
    assert ready("apply").code == 0
    result = ready("revert")
    assert result.code == 0
    assert "a module stays loaded" in result.out
    assert "\n1 step reverted on hv1 (run 2).\n" in result.out


@pytest.fixture
def with_profiles(changeable):
    """A host with two profiles that apply created."""
    fake = changeable.fake
    fake.network_manager()
    for name in ("ib0", "ib1"):
        fake.nm_device(name, "disconnected")
        address = fake.text(name, "address")
        fake.netdev(name, type=32, mtu=2044, address=address, kind="ipoib")
    under(changeable.root, "/etc/modprobe.d").mkdir(parents=True, exist_ok=True)
    changeable.follow(POLICY)
    assert changeable("apply").code == 0
    assert fake.profile("ib0")
    assert fake.profile("ib1")
    return changeable


def test_a_profile_with_the_engines_network_in_it_is_not_deleted(with_profiles):
    """nmstate keeps the UUID; name, MTU and addresses belong to the network."""
    networks = under(with_profiles.root, "/var/lib/vdsm/staging/netconf/nets")
    networks.mkdir(parents=True)
    (networks / "storage").write_text('{"nic": "ib0", "bridged": false, "mtu": 1500}')
    for words in ((), ("IPOIB-PROFILE-01/ib0",)):
        with_profiles("revert", *words).refused(
            4, "IPOIB-PROFILE-01/ib0", "for engine: network storage on ib0", "detach"
        )
    assert with_profiles.fake.profile("ib0")
    assert with_profiles("revert", "IPOIB-PROFILE-01/ib1").code == 0
    assert with_profiles.fake.profile("ib1") is None
    assert with_profiles("revert", "--allow-link-down").code == 0
    assert with_profiles.fake.profile("ib0") is None


def test_a_profile_stays_held_while_network_manager_does_not_run(with_profiles):
    with_profiles.fake.network_manager(running=False)
    result = with_profiles("revert")
    assert result.code == 1
    assert "NetworkManager" in result.out
    assert "2 could not be reverted, and are still applied" in result.out
    with_profiles.fake.network_manager()
    assert with_profiles("revert").code == 0
    assert with_profiles.fake.profile("ib0") is None
    assert "changes   nothing to revert\n" in with_profiles("status").out


def test_status_of_what_is_held(applied):
    result = applied("status")
    assert (result.code, result.err) == (0, "")
    assert "changes   3 steps applied, since 2023-11-14 23:13:20 UTC\n" in result.out
    assert "at boot   4 values set by our units\n" in result.out
    changes = applied("status", "-o", "json").document["changes"]
    assert changes["by_loaded_policy"] is True
    applied.follow(POLICY.replace("5}", "6}"))
    told = "UTC, not all by the policy that is loaded now\n"
    assert told in applied("status").out


def test_status_with_a_damaged_journal(applied):
    under(applied.root, JOURNAL).write_text("{\n{\n")
    result = applied("status")
    assert result.code == 0
    assert "changes   unknown: " in result.out
    assert "The changes that can be reverted are unknown.\nfix: " in result.out
    document = applied("status", "-o", "json").document
    assert document["changes"] is None
    assert "it is not JSON" in document["problems"][0]


def test_status_of_others_than_root(applied, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(journal, "read_own_file", denied)
    result = applied("status")
    assert result.code == 0
    path = under(applied.root, JOURNAL)
    assert f"{path} may be read by root only" in " ".join(result.out.split())


@pytest.fixture
def smaller_mtu(changeable):
    """A host whose policy requires another MTU of one netdev."""
    changeable.follow(
        "version: 1\nhost:\n  interfaces:\n"
        "    - {match: {port: 1}, transport_mode: datagram, mtu: 1500}\n"
    )
    return changeable


def test_an_mtu_there_and_back(smaller_mtu):
    assert smaller_mtu("apply").code == 0
    assert smaller_mtu.fake.text("ib0", "mtu") == "1500"
    assert smaller_mtu("revert").code == 0
    assert smaller_mtu.fake.text("ib0", "mtu") == "2044"
