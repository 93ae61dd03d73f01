# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a hypervisor guest with systemd, udev, NetworkManager and a permanent disk.

Tests of host preparation rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import installed_host
from lab.guest import Guest
from lab.ib_pair import IbPair, ib_pair
from lab.infiniband import InfiniBand

pytestmark = pytest.mark.selftest

CHECKOUT = Path(__file__).resolve().parents[2]
FABRIC = InfiniBand(pkeys=(0xFFFF, 0x8001))
ADDRESSES = {"10.97.0.2/24", "fd00:97::2/64"}
# The services that run in it; none is one of the machine.
SERVICES = {
    "NetworkManager.service",
    "dbus.service",
    "lab-agent.service",
    "systemd-journald.service",
    "systemd-udevd.service",
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IbPair]:
    disk = tmp_path_factory.mktemp("disk") / "hypervisor.img"
    guest = Guest("hypervisor", systemd=True, disk=disk)
    with ib_pair(FABRIC, guest=guest, network_manager=True) as booted:
        yield booted


@pytest.fixture(scope="module")
def guest(pair: IbPair) -> Guest:
    return pair.hypervisor


def said(guest: Guest, line: str) -> str:
    return guest.run(line, check=True).stdout.strip()


def addresses(guest: Guest, netdev: str) -> set[str]:
    shown = said(guest, f"ip -o address show dev {netdev} scope global")
    return set(re.findall(r"inet6? (\S+)", shown))


def test_systemd_runs_and_nothing_of_the_machines(guest: Guest) -> None:
    assert said(guest, "systemctl is-system-running --wait") == "running"
    assert said(guest, "cat /proc/1/comm") == "systemd"
    assert said(guest, "hostname") == "hypervisor"
    listed = said(guest, "systemctl list-units --type=service --state=running --plain")
    assert set(re.findall(r"^(\S+\.service) ", listed, re.MULTILINE)) == SERVICES
    assert said(guest, "systemctl list-timers --no-legend") == ""


def test_a_unit_a_timer_and_the_journal(guest: Guest) -> None:
    # Without AccuracySec a timer may be a minute late.
    timer = "systemd-run --on-active=0.2 --timer-property=AccuracySec=50ms"
    said(guest, f"{timer} --unit=once sh -c 'echo it fired; touch /run/fired'")
    said(guest, "until [ -e /run/fired ]; do sleep 0.1; done; journalctl --sync")
    assert "it fired" in said(guest, "journalctl -u once.service -o cat")


def test_commands_have_the_same_variables_as_without_systemd(guest: Guest) -> None:
    names = said(guest, "env | cut -d= -f1 | sort").split()
    ours = {"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE"}
    assert set(names) - {"PWD", "SHLVL", "_"} == ours


def test_a_udev_rule_starts_a_unit_for_a_netdev(guest: Guest) -> None:
    rule = (
        'ACTION=="add", SUBSYSTEM=="net", KERNEL=="ib*", TAG+="systemd",'
        ' ENV{SYSTEMD_WANTS}+="seen@%k.service"\n'
    )
    unit = "[Service]\nType=oneshot\nExecStart=touch /run/seen-%i\n"
    guest.run("cat > /etc/systemd/system/seen@.service", input=unit, check=True)
    guest.run("cat > /etc/udev/rules.d/90-seen.rules", input=rule, check=True)
    said(guest, "systemctl daemon-reload; udevadm control --reload")
    said(guest, "echo 0x8001 > /sys/class/net/ib0/create_child")
    said(guest, "until [ -e /run/seen-ib0.8001 ]; do sleep 0.1; done")
    said(guest, "echo 0x8001 > /sys/class/net/ib0/delete_child")
    said(guest, "rm /etc/udev/rules.d/90-seen.rules; udevadm control --reload")


def test_udev_knows_the_hcas_and_keeps_names_and_drivers(guest: Guest) -> None:
    assert said(guest, "ls /sys/class/infiniband").split() == ["mlx4_0", "mlx4_1"]
    told = said(guest, "udevadm info /sys/class/net/ib0")
    assert "E: ID_NET_DRIVER=ib_ipoib" in told
    assert "E: ID_VENDOR_ID=0x15b3" in told
    # As with rdma-core's rules on a host; and what they must not do here.
    assert said(guest, "systemctl is-active rdma-load-modules@rdma.service") == "active"
    assert guest.run("modprobe mlx4_core").exit_code == 1
    assert "mlx4_core" not in said(guest, "lsmod")


def test_network_manager_has_the_hypervisors_netdev_only(pair: IbPair) -> None:
    guest = pair.hypervisor
    devices = said(guest, "nmcli -t -f device,type,state,connection device")
    assert "ib0:infiniband:connected:ib0" in devices.splitlines()
    assert "ib1" not in devices
    assert addresses(guest, "ib0") == ADDRESSES
    assert said(guest, "cat /sys/class/net/ib0/mode") == "datagram"
    assert said(guest, "ls /etc/NetworkManager/system-connections") == (
        "ib0.nmconnection"
    )
    shown = pair.server.run("ip -br address show dev ib1", check=True).stdout
    assert "10.97.0.1/24" in shown


def test_profiles_are_made_changed_loaded_and_deleted(guest: Guest) -> None:
    folder = "/etc/NetworkManager/system-connections"
    said(
        guest,
        "nmcli connection add type infiniband con-name child ifname ib0.8001"
        " infiniband.parent ib0 infiniband.p-key 0x8001 autoconnect no"
        " infiniband.transport-mode datagram ipv4.method disabled ipv6.method disabled",
    )
    said(guest, "nmcli connection modify child infiniband.transport-mode connected")
    said(guest, "nmcli connection up child")
    assert said(guest, "cat /sys/class/net/ib0.8001/mode") == "connected"
    said(guest, f"sed -i s/=connected/=datagram/ {folder}/child.nmconnection")
    said(guest, f"nmcli connection load {folder}/child.nmconnection")
    said(guest, "nmcli connection up child")
    assert said(guest, "cat /sys/class/net/ib0.8001/mode") == "datagram"
    said(guest, "nmcli connection delete child")
    assert said(guest, f"ls {folder}") == "ib0.nmconnection"
    # NetworkManager removes the child that it made.
    said(guest, "while [ -e /sys/class/net/ib0.8001 ]; do sleep 0.1; done")


def test_nfs_over_rdma(pair: IbPair) -> None:
    options = "vers=4.2,proto=rdma,port=20049,retry=0"
    mounted = f"mount -t nfs -o {options} {pair.export} /mnt && findmnt -n /mnt"
    try:
        assert "proto=rdma" in said(pair.hypervisor, mounted)
    finally:
        pair.hypervisor.run("umount /mnt")


def test_our_package_is_installed(guest: Guest) -> None:
    installed_host.install(guest)
    told = guest.run([installed_host.COMMAND, "--version"], check=True).stdout
    assert told.startswith("ovirt-rdma-host ")
    assert said(guest, "stat -c %u:%g /run/ovirt-rdma/mounts") == "36:36"
    units = [path.name for path in (CHECKOUT / "host/systemd").glob("*.service")]
    said(guest, f"systemctl cat {' '.join(units)}")
    states = {
        unit: guest.run(f"systemctl is-enabled {unit}").stdout.strip()
        for unit in ("ovirt-rdma-recover.service", "ovirt-rdmad.service")
    }
    assert list(states.values()) == ["static", "static"]
    # By a link of the package, as the target's systemd sees it.
    wanted = said(guest, "systemctl show -p Wants --value multi-user.target")
    assert "ovirt-rdma-recover.service" in wanted.split()
    assert said(guest, f"ls {installed_host.HOOKS}").split() == sorted(
        path.parent.name for path in (CHECKOUT / "vdsm_hooks").glob("*/50_ovirt_rdma")
    )
    said(guest, "/usr/bin/python3 -c 'import ovirt_rdma.host, ovirt_rdma.vdsm_hooks'")


# Last, because it ends what the other tests read.
def test_a_power_cut_takes_what_was_not_synced(pair: IbPair) -> None:
    guest = pair.hypervisor
    unit = (
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    guest.run("cat > /etc/systemd/system/boot.service", input=unit, check=True)
    said(guest, "systemctl enable boot.service; echo synced > /srv/file; sync")
    said(guest, "echo later > /srv/late; touch /run/fresh")
    guest.kill()
    guest.power_on()
    guest.wait_ready()
    assert said(guest, "cat /srv/file") == "synced"
    # At most its name exists: the kernel writes a file after half a minute.
    assert guest.run("cat /srv/late").stdout == ""
    assert guest.run("test -e /run/fresh").exit_code == 1
    assert said(guest, "systemctl is-system-running --wait") == "running"
    assert said(guest, "systemctl is-active boot.service") == "active"
    # The pair is set up again, with the profile that is on the disk.
    before = said(guest, "cat /etc/NetworkManager/system-connections/*")
    pair.start()
    assert said(guest, "cat /etc/NetworkManager/system-connections/*") == before
    assert addresses(guest, "ib0") == ADDRESSES
    test_nfs_over_rdma(pair)
