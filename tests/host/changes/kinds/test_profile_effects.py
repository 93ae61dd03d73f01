# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of NetworkManager profiles: single properties, and new profiles."""

import errno

import pytest
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx3_ib

from ovirt_rdma.host.changes.kinds import profile
from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Reading,
)
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.rules.base import PROFILE, Change
from ovirt_rdma.host.rules.ipoib import new_profile
from ovirt_rdma.host.system import files as atomic_file

pytestmark = pytest.mark.hypervisor

UUID = "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
OTHER = "11111111-1b1e-4c35-b2a5-6a56fd8f8f14"
MODE = "infiniband.transport-mode"
MTU = "infiniband.mtu"
TSO = "ethtool.feature-tso"
GSO = "ethtool.feature-gso"
FOLDER = "etc/NetworkManager/system-connections"


@pytest.fixture
def host(host):
    host.network_manager()
    host.nm_device("ib0", "disconnected")
    host.nm_device("ib1", "unavailable")
    return host


REFUSED = "network-manager-refused"
NOT_RUNNING = "network-manager-not-running"
EXISTS = "profile-file-exists"


def fails(effect, *args):
    with pytest.raises(EffectFailed) as failed:
        effect(*args)
    assert "\n" not in str(failed.value)
    return Sentence(failed.value.id, str(failed.value))


def act(name, before, after, target):
    change = Change(PROFILE, target, before, after, name)
    return AtomicChange("S/x", "live", (change,))


def new(name="ib0", parent=None, pkey=None, uuid=UUID, rule="IPOIB-PROFILE-01"):
    if parent:
        rule = "IPOIB-PKEY-01"
    changes = new_profile(name, "datagram", parent, pkey)
    return AtomicChange(f"{rule}/{name}", "live", changes, uuid)


def files(host):
    return sorted(path.name for path in (host.path / FOLDER).iterdir())


# Single properties


def test_a_property_goes_there_and_back(host):
    uuid = host.nm_profile("storage", interface_name="ib0")
    one = act(MODE, "datagram", "connected", uuid)
    host.effects().do(one)
    assert host.profile("storage")[MODE] == "connected"
    assert host.effects().read(one.changes[0]) == Reading("connected")
    for _ in range(2):
        host.effects().undo(one)
        assert host.profile("storage")[MODE] == "datagram"
    modified = [argv for argv in host.runner.ran if "modify" in argv]
    assert len(modified) == 2
    assert not host.effects().gone(one)


def test_a_changed_property_is_on_disk_before_it_is_noted(host, monkeypatch):
    seen = []

    def sync(folder):
        seen.append((str(folder), host.profile("storage")[MODE]))

    monkeypatch.setattr("ovirt_rdma.host.changes.kinds.profile.sync_directory", sync)
    uuid = host.nm_profile("storage", interface_name="ib0")
    host.effects().do(act(MODE, "datagram", "connected", uuid))
    assert seen == [(str(host.path / FOLDER), "connected")]


@pytest.mark.parametrize(
    ("name", "value", "unset"), [(MTU, "2044", "auto"), (TSO, "off", None)]
)
def test_what_was_not_set_is_unset_again(host, name, value, unset):
    uuid = host.nm_profile("ib0")
    one = act(name, None, value, uuid)
    assert host.effects().read(one.changes[0]) == Reading()
    host.effects().do(one)
    assert host.effects().read(one.changes[0]) == Reading(value)
    host.effects().undo(one)
    assert host.profile("ib0").get(name) == unset
    assert host.effects().read(one.changes[0]) == Reading()


def test_no_empty_setting_is_left_behind(host):
    """NetworkManager keeps "[ethtool]" in the file when its last property goes."""
    uuid, other = host.nm_profile("ib0"), host.nm_profile("ib1", properties={GSO: "on"})
    for one in (act(TSO, None, "off", uuid), act(TSO, None, "off", other)):
        host.effects().do(one)
        host.effects().undo(one)
    assert host.emptied(uuid) is None
    assert host.profile("ib1")[GSO] == "on"
    removed = [argv for argv in host.runner.ran if "remove" in argv]
    assert [argv[-3:] for argv in removed] == [(uuid, "remove", "ethtool")]


def test_a_profile_that_is_gone(host):
    one = act(MTU, None, "2044", UUID)
    assert host.effects().read(one.changes[0]) == Reading()
    assert host.effects().gone(one)
    assert fails(host.effects().do, one).id == "profile-gone"
    host.effects().undo(one)


@pytest.mark.parametrize("shown", ["", "Warning: the versions don't match.\n"])
def test_a_profile_that_nmcli_does_not_show_is_not_gone(host, shown):
    """Its revert would be done, with our value in it and the earlier one forgotten."""
    uuid = host.nm_profile("ib0", properties={MTU: "2044"})
    one = act(MTU, None, "2044", uuid)

    def run(argv):
        return shown if "show" in argv else host.run(argv)

    effects = HostEffects(host.path, run, host.sleep)
    assert effects.read(one.changes[0]).problem.startswith(f"the profile {uuid} cannot")
    assert not effects.gone(one)
    effects.undo(one)
    assert host.profile("ib0")[MTU] == "auto"


def test_a_profile_that_goes_between_reading_and_undo(host):
    uuid = host.nm_profile("ib0", properties={MTU: "2044"})
    host.fail("nmcli connection modify", 10, "Error: unknown connection 'x'.")
    host.effects().undo(act(MTU, None, "2044", uuid))
    assert [argv[1:5] for argv in host.failed] == [
        ("connection", "modify", "uuid", uuid)
    ]


@pytest.mark.parametrize(
    ("code", "message", "id", "words"),
    [
        (3, "Error: Timeout expired.", REFUSED, "it did not answer in time"),
        (1, "Error: Failed to modify: busy.", REFUSED, "Error: Failed to modify: busy"),
        (None, "no answer within 60 s", REFUSED, "no answer within 60 s"),
        (8, "Error: NetworkManager is not running.", NOT_RUNNING, ""),
    ],
)
def test_a_networkmanager_that_refuses_is_said(host, code, message, id, words):
    uuid = host.nm_profile("ib0")
    host.fail("nmcli connection modify", code, message)
    sentence = fails(host.effects().do, act(MTU, None, "2044", uuid))
    assert sentence.id == id
    assert uuid in sentence and f"{MTU} 2044" in sentence
    assert sentence.endswith(words)


def test_without_networkmanager(host, tmp_path_factory):
    other = changing(connectx3_ib, tmp_path_factory.mktemp("other"))
    for each in (host, other):
        if each is host:
            uuid = host.nm_profile("ib0")
            host.network_manager(running=False)
        single = act(MTU, None, "2044", uuid)
        problem = each.effects().read(single.changes[0]).problem
        assert "NetworkManager is not running" in problem
        assert ("nmcli" in problem) is (each is other)
        assert fails(each.effects().do, single).id == NOT_RUNNING
        assert fails(each.effects().undo, single).id == NOT_RUNNING
        assert not each.effects().gone(single)
        assert fails(each.effects().do, new()).id == NOT_RUNNING
        each.effects().undo(new())  # there is no file, so nothing has to be done
        assert not (each.path / FOLDER).is_dir() or files(each) == []


# New profiles


def test_a_new_profile_is_written_loaded_and_activated(host):
    one = new()
    assert host.effects().gone(one)
    host.effects().do(one)
    (name,) = files(host)
    assert name == "ovirt-rdma-ib0.nmconnection"
    place = host.path / FOLDER / name
    assert place.stat().st_mode & 0o777 == 0o600
    text = place.read_text().splitlines()
    assert {"[connection]", "type=infiniband", f"uuid={UUID}"} <= set(text)
    assert {"[infiniband]", "transport-mode=datagram", "method=disabled"} <= set(text)
    assert host._nm_devices["ib0"] == "connected"
    for change in one.changes:
        assert host.effects().read(change, UUID) == Reading(change.after)
    assert not host.effects().gone(one)


def test_a_new_profile_is_deleted_whole(host):
    one = new()
    host.effects().do(one)
    for _ in range(2):
        host.effects().undo(one)
        assert files(host) == []
        assert host.profile("ib0") is None
        assert host.effects().gone(one)
        assert host.effects().read(one.changes[0], UUID) == Reading()


@pytest.mark.parametrize(
    ("state", "activated"),
    [
        ("disconnected", True),
        ("connected (externally)", True),
        ("connected", False),  # another profile is active on it
        ("connecting (getting IP configuration)", False),
        ("unavailable", False),
        ("unmanaged", False),
    ],
)
def test_a_profile_is_activated_where_the_netdev_is_free(host, state, activated):
    host.nm_device("ib0", state)
    host.effects().do(new())
    ups = [argv for argv in host.runner.ran if "up" in argv]
    assert bool(ups) is activated
    assert host.profile("ib0") is not None


def test_a_netdev_that_loses_carrier_meanwhile_gets_its_profile_later(host):
    host.write("/sys/class/net/ib0/carrier", "0")
    host.effects().do(new())
    assert host.profile("ib0") is not None


def test_a_profile_that_cannot_be_activated_is_not_kept(host):
    host.fail("nmcli --wait 50 connection up", 4, "Error: activation failed: x.")
    words = fails(host.effects().do, new())
    assert words.id == REFUSED
    assert "ib0" in words and words.endswith(": Error: activation failed: x")
    assert files(host) == []
    assert host.profile("ib0") is None


def test_a_profile_that_networkmanager_does_not_take_leaves_no_file(host):
    host.takes_profiles = False
    words = fails(host.effects().do, new())
    assert (words.id, words.endswith("ib0")) == ("profile-not-loaded", True)
    assert files(host) == []


def test_a_profile_that_networkmanager_has_otherwise_is_not_kept(host, monkeypatch):
    shown = host._nmcli

    def otherwise(argv):
        return shown(argv).replace(
            "transport-mode:datagram", "transport-mode:connected"
        )

    monkeypatch.setattr(host, "_nmcli", otherwise)
    words = fails(host.effects().do, new())
    assert words.id == "profile-value-differs"
    assert MODE in words and "is connected" in words and "not datagram" in words
    assert files(host) == []


def test_a_failed_profile_that_cannot_be_deleted_is_said(host):
    host.fail("nmcli --wait 50 connection up", 4, "Error: activation failed.")
    host.fail("nmcli --wait 30 connection delete", 7, "Error: not deleted.")
    words = fails(host.effects().do, new())
    assert words.id == "profile-not-removed"
    assert "Error: activation failed" in words
    assert f"the profile {UUID} cannot be deleted: Error: not deleted" in words


@pytest.mark.parametrize("make", ["foreign", "link"])
def test_a_foreign_file_where_ours_would_go_is_left(host, make):
    place = host.path / profile.path_of("ib0")[1:]
    if make == "foreign":
        place.write_text(f"[connection]\nuuid={OTHER}\n")
    else:
        place.symlink_to("/nowhere")
    words = fails(host.effects().do, new())
    assert (words.id, str(profile.path_of("ib0")) in words) == (EXISTS, True)
    assert place.is_symlink() or OTHER in place.read_text()
    host.effects().undo(new())
    assert place.is_symlink() or OTHER in place.read_text()


def test_a_full_disk_leaves_no_profile(host, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_file.os, "fsync", full)
    words = fails(host.effects().do, new())
    assert "cannot be written: No space left on device" in words
    monkeypatch.undo()
    assert files(host) == []


def test_where_networkmanager_keeps_no_files(host):
    (host.path / FOLDER).rmdir()
    words = fails(host.effects().do, new())
    assert (words.id, f"/{FOLDER}" in words) == ("profile-folder-missing", True)


def killed_between_file_and_load(host, one):
    host.takes_profiles = False
    path = host.path / profile.path_of("ib0")[1:]
    wanted = {c.name: c.after for c in one.changes}
    path.write_text(profile.text_of({profile.UUID: UUID, **wanted}))
    host.takes_profiles = True


@pytest.mark.parametrize("running", [True, False])
def test_a_run_killed_before_the_profile_was_loaded_is_taken_back(host, running):
    one = new()
    killed_between_file_and_load(host, one)
    (
        host.path / FOLDER / ".ovirt-rdma-ib0.nmconnection.abcd1234.ovirt-rdma"
    ).write_text("half")
    host.network_manager(running=running)
    for change in one.changes:
        assert host.effects().read(change, UUID) == Reading(change.after)
    assert not host.effects().gone(one)
    host.effects().undo(one)
    assert files(host) == []


def test_a_run_killed_before_the_profile_was_loaded_can_be_done_again(host):
    killed_between_file_and_load(host, new())
    host.effects().do(new())
    assert host.profile("ib0") is not None


def test_an_odd_file_is_no_profile_of_ours(host):
    place = host.path / profile.path_of("ib0")[1:]
    for data in (b"", b"[connection\n", b"\xff\xfe", b"uuid=x\n[a]\n[a]\n"):
        place.write_bytes(data)
        assert host.effects().read(new().changes[0], UUID) == Reading()
        assert fails(host.effects().do, new()).id == EXISTS


def test_a_property_of_a_new_profile_is_changed_by_its_uuid(host):
    host.effects().do(new())
    change = Change(PROFILE, "new:ib0", None, "2044", MTU)
    one = AtomicChange("IPOIB-MTU-01/ib0", "live", (change,), UUID)
    host.effects().do(one)
    assert host.effects().read(change, UUID) == Reading("2044")
    assert host.effects().read(change) == Reading()  # before it has a UUID
    host.effects().undo(one)
    assert host.profile("ib0")[MTU] == "auto"
    host.effects().undo(new())
    assert host.effects().gone(one)
    host.effects().undo(one)


# P_Key children


CHILD = ("ib0.8001", "ib0", "0x8001")


def test_a_childs_profile_makes_and_removes_the_netdev(host):
    one = new(*CHILD)
    host.effects().do(one)
    assert host.state("ib0.8001")[:2] == ("datagram", "2044")
    assert "p-key=32769" in (host.path / profile.path_of("ib0.8001")[1:]).read_text()
    for change in one.changes:
        assert host.effects().read(change, UUID) == Reading(change.after)
    host.effects().undo(one)
    assert "ib0.8001" not in host.netdevs()
    assert files(host) == []


def test_a_child_that_does_not_appear(host, monkeypatch):
    monkeypatch.setattr(host, "activate", lambda uuid: None)
    words = fails(host.effects().do, new(*CHILD))
    assert words.id == "netdev-not-created"
    assert "ib0.8001" in words and "5 s" in words
    assert files(host) == []


def test_a_child_without_carrier_is_made_all_the_same(host):
    create = host.create_child

    def without_carrier(parent, pkey):
        name = create(parent, pkey)
        host.write(f"/sys/class/net/{name}/carrier", "0")
        return name

    host.create_child = without_carrier
    host.effects().do(new(*CHILD))
    assert "ib0.8001" in host.netdevs()


def test_a_child_that_stays_after_its_profile_is_said(host, monkeypatch):
    host.effects().do(new(*CHILD))
    monkeypatch.setattr(host, "remove_netdev", lambda name: None)
    words = fails(host.effects().undo, new(*CHILD))
    assert (words.id, "ib0.8001" in words) == ("netdev-not-removed", True)


def test_a_child_goes_with_its_profile_while_network_manager_does_not_run(host):
    """After it is started again, NetworkManager does not know that netdev."""
    host.effects().do(new(*CHILD))
    host.network_manager(running=False)
    for _ in range(2):
        host.effects().undo(new(*CHILD))
        assert "ib0.8001" not in host.netdevs()
        assert files(host) == []


def test_a_child_that_was_there_before_its_profile_stays(host):
    host.pkey_child("ib0", "0x8001")
    host.nm_device("ib0.8001", "connected (externally)")
    changes = new_profile("ib0.8001", "datagram", "ib0", "0x8001")
    one = AtomicChange("IPOIB-PROFILE-01/ib0.8001", "live", changes, UUID)
    host.effects().do(one)
    host.effects().undo(one)
    assert "ib0.8001" in host.netdevs()
    assert host.waited == 0


# Keyfiles


def test_values_survive_a_keyfile():
    values = {
        "connection.id": "ib\\0",
        "connection.uuid": UUID,
        TSO: "off",
        "infiniband.p-key": "0x8001",
    }
    text = profile.text_of(values)
    assert profile.value_in(text, "connection.id") == "ib\\0"
    assert profile.value_in(text, TSO) == "false"
    assert profile.value_in(text, "infiniband.p-key") == "32769"
    assert profile.value_in(text, "infiniband.mtu") is None
    assert profile.value_in("nothing", TSO) is None
