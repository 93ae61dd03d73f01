# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that boot settings are set again when a netdev appears."""

import threading
from dataclasses import replace

import pytest
from support.fakes.fake_root import Pci

from ovirt_rdma.host.changes import boot
from ovirt_rdma.host.changes.journal import Journal, Ledger, Run
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of
from ovirt_rdma.host.rules.base import OFFLOAD, SYSFS, Change
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor

HCA = "0000:04:00.0"
TSO = "tx-tcp-segmentation"


@pytest.fixture
def host(host):
    without_address(host)
    return host


def without_address(host, *addresses):
    """Make sure that nothing uses ib0; with addresses, something may."""
    address = host.text("ib0", "address")
    host.netdev(
        "ib0", type=32, mtu=2044, address=address, kind="ipoib", addresses=addresses
    )


@pytest.fixture
def said():
    return []


def sysfs(file, after, name="ib0", clamped=False):
    target = f"/sys/class/net/{name}/{file}"
    return Change(SYSFS, target, None, after, clamped=clamped)


def hold(host, *changes):
    """Record a change as a run does: applied, and a boot setting."""
    facts = host.reader().facts()
    acts = [
        AtomicChange("S/x", "live", (c,), None, kind_of(c).place(facts), False)
        for c in changes
    ]
    Journal(host.path).write(Ledger((done(acts),)))
    return acts


def done(acts):
    """Return a run that has made ``acts``."""
    changes = [
        replace(act, run=1, number=number, boot="boot", found=(act.changes[0].after,))
        for number, act in enumerate(acts)
    ]
    at = "2026-11-21T12:00:00Z"
    return Run(1, "apply", at, acts=tuple(changes), outcome="done", ended=at)


def again(host, name, said):
    return boot.restore_netdev(host.path, host.run, name, said.append, host.effects())


ALL = (
    sysfs("mode", "connected"),
    sysfs("mtu", "32000"),
    Change(OFFLOAD, "ib0", "on", "off", TSO),
    sysfs("create_child", "0x8001"),
)


def test_after_a_boot_all_is_as_it_was(host, said):
    hold(host, *ALL)
    for _ in range(2):
        host.reboot()
        said.clear()
        assert again(host, "ib0", said) == 0
        assert host.state("ib0") == ("connected", "32000", "off")
        assert "ib0.8001" in host.netdevs()
        assert said == [
            "mode of ib0 was datagram, is connected",
            "mtu of ib0 was 65520, is 32000",
            f"{TSO} of ib0 was on, is off",
            "the netdev ib0.8001 was None, is 0x8001",
        ]


def test_what_is_so_already_is_left_alone(host, said):
    hold(host, *ALL)
    again(host, "ib0", said)
    host.written.clear()
    said.clear()
    assert again(host, "ib0", said) == 0
    assert (host.written, said) == ([], [])


def test_a_clamped_mtu_is_not_written_again_and_again(host, said):
    hold(host, sysfs("mtu", "4092", clamped=True))
    assert host.state("ib0")[1] == "2044"
    assert again(host, "ib0", said) == 0
    assert host.written == []


def test_other_netdevs_are_not_touched(host, said):
    hold(host, sysfs("mode", "connected"))
    assert again(host, "ib1", said) == 0
    assert again(host, "nothing0", said) == 0
    assert (host.written, said) == ([], [])


def test_a_netdev_that_has_another_name_after_the_boot(host, said):
    hold(host, *ALL)
    host.reboot()
    host.rename_netdev("ib0", "storage")
    assert again(host, "ib0", said) == 0
    assert host.written == []
    assert again(host, "storage", said) == 0
    assert host.state("storage") == ("connected", "32000", "off")
    assert "storage.8001" in host.netdevs()


def test_a_childs_own_settings_come_when_the_child_does(host, said):
    hold(host, sysfs("create_child", "0x8001"))
    again(host, "ib0", said)
    child = sysfs("mode", "connected", "ib0.8001")
    hold(host, sysfs("create_child", "0x8001"), child)
    host.reboot()
    assert again(host, "ib0", said) == 0
    assert host.state("ib0.8001")[0] == "datagram"
    assert again(host, "ib0.8001", said) == 0
    assert host.state("ib0.8001")[0] == "connected"


def test_without_boot_settings_nothing_is_done(host, said):
    assert again(host, "ib0", said) == 0
    assert (host.written, said) == ([], [])


def test_damage_is_said(host, said):
    hold(host, *ALL)
    Journal(host.path).path.write_text("{")
    assert again(host, "ib0", said) == 1
    (sentence,) = said
    assert "journal.json: it is not JSON" in sentence
    assert host.written == []


def test_one_setting_that_fails_does_not_keep_back_the_others(host, said):
    hold(host, sysfs("mode", "connected"), sysfs("mtu", "2000"))
    host.refusals["/sys/class/net/ib0/mode"] = 22
    assert again(host, "ib0", said) == 1
    assert "mode of ib0 stays datagram: " in said[0]
    assert said[1] == "mtu of ib0 was 2044, is 2000"


def test_a_value_that_does_not_stick_is_said(host, said):
    hold(host, sysfs("mode", "connected"))
    host.ignored.add("/sys/class/net/ib0/mode")
    assert again(host, "ib0", said) == 1
    assert said == ["mode of ib0 is datagram, and should be connected"]


def test_a_netdev_in_use_is_not_taken_down(host, said):
    hold(host, sysfs("mode", "connected"), sysfs("mtu", "2000"))
    without_address(host, "10.0.0.2/24")
    host.nfs_mount("10.0.0.1:/data", "/mnt/data")
    assert again(host, "ib0", said) == 1
    assert said[0] == (
        "mode of ib0 stays datagram: in use (nfs: 10.0.0.1:/data at /mnt/data)"
    )
    assert host.state("ib0")[:2] == ("datagram", "2000")


def test_no_surprise_escapes(host, said):
    hold(host, sysfs("mode", "connected"))

    class Broken(HostEffects):
        def do(self, act):
            raise RuntimeError("odd")

    code = boot.restore_netdev(
        host.path, host.run, "ib0", said.append, Broken(host.path, host.run)
    )
    assert code == 1
    assert said == ["ib0: its settings could not be set again: RuntimeError('odd')"]


def test_what_an_interrupted_revert_has_taken_back_is_not_set_again(host, said):
    acts = hold(host, sysfs("mode", "connected"), sysfs("mtu", "32000"))
    assert again(host, "ib0", said) == 0
    assert host.state("ib0")[:2] == ("connected", "32000")
    run = done(acts)
    undone = replace(run.acts[1], undoing=("65520",), undoing_run=2, undone_by=2)
    revert = Run(2, "revert", "2026-11-21T13:00:00Z")
    Journal(host.path).write(Ledger((run, revert)).with_changes([undone]))
    host.reboot()
    assert again(host, "ib0", said) == 0
    assert host.state("ib0")[:2] == ("connected", "65520")


# Another run at the same time


def test_it_waits_for_a_run_that_is_at_work(host, said):
    hold(host, sysfs("mtu", "2000"))
    with one_run(host.path):
        thread = threading.Thread(target=again, args=(host, "ib0", said))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert host.written == []
        hold(host, sysfs("mtu", "2040"))  # the value that this run leaves counts
    thread.join(120)
    assert host.state("ib0")[1] == "2040"


def test_it_does_not_wait_for_ever(host, said, monkeypatch):
    monkeypatch.setattr(boot, "LOCK_S", 0.05)
    hold(host, sysfs("mtu", "2000"))
    with one_run(host.path):
        assert again(host, "ib0", said) == 1
    assert "another run of ovirt-rdma-host" in said[0]


# The MTU of an mlx4 port


PORT_MTU = f"/sys/bus/pci/devices/{HCA}/mlx4_port1_mtu"


@pytest.fixture
def mlx4(host):
    hca = Pci(HCA, "0x15b3", "0x1003", "mlx4_core")
    host.adapter(hca)
    host.mlx4_port(hca, 1, "ib", mtu=4096)
    return host


def test_an_adapters_port_is_first_as_its_netdevs_go_and_come_back(mlx4, said):
    hold(mlx4, sysfs("mode", "connected", "ib1"), Change(SYSFS, PORT_MTU, None, "2048"))
    assert again(mlx4, "ib1", said) == 0
    assert [value for _, value in mlx4.written] == ["2048", "connected"]
    assert mlx4.state("ib1")[0] == "connected"


def test_an_adapter_is_left_where_another_netdev_of_it_is_in_use(mlx4, said):
    hold(mlx4, Change(SYSFS, PORT_MTU, None, "2048"))
    without_address(mlx4, "10.0.0.2/24")
    mlx4.nfs_mount("10.0.0.1:/data", "/mnt/data")
    assert again(mlx4, "ib1", said) == 1
    assert said == [f"{PORT_MTU} stays 4096: in use (nfs: 10.0.0.1:/data at /mnt/data)"]
    assert mlx4.written == []


def test_an_adapters_port_that_never_takes_the_value_is_tried_once(mlx4, said):
    hold(mlx4, Change(SYSFS, PORT_MTU, None, "2048"))
    mlx4.ignored.add(PORT_MTU)
    assert [again(mlx4, "ib0", said) for _ in range(3)] == [1, 1, 1]
    assert len(mlx4.written) == 1
    assert said[1] == f"{PORT_MTU} stays 4096: an earlier write was not accepted"
    mlx4.ignored.clear()
    mlx4.reboot()  # /run is empty again
    assert again(mlx4, "ib0", said) == 0


def test_an_adapters_port_is_set_again_after_its_driver_was_loaded_anew(mlx4, said):
    hold(mlx4, Change(SYSFS, PORT_MTU, None, "2048"))
    for _ in range(3):
        mlx4.write(PORT_MTU, "4096")
        assert again(mlx4, "ib0", said) == 0  # it is set
        assert again(mlx4, "ib0", said) == 0  # the netdev has come back
    assert len(mlx4.written) == 3
