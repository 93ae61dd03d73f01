# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the InfiniBand fabric: its identity, and traffic over it.

test_ipoib_kernel_lab.py tests modes, MTUs and P_Keys of the kernel's ib_ipoib.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.cache import provisioned
from lab.command import Result
from lab.ib_fabric_build import build
from lab.ib_pair import EXPORT_PATH, HYPERVISOR_ADDRESSES, IbPair, ib_pair
from lab.infiniband import InfiniBand, PciFunction
from lab.problem import CommandFailed

pytestmark = pytest.mark.selftest

STANDARD = InfiniBand(
    pkeys=(0xFFFF, 0x8001),
    pci=PciFunction(driver="mlx4_core"),
    board_id="MT_0A30110009",
)
# The kernel's messages about its own errors.
BROKEN = re.compile(r"WARNING|BUG|Oops|Call Trace|refcount|leaked|is full")
SYS = "/sys/class/infiniband/mlx4_0"


@pytest.fixture(scope="module")
def pair() -> Iterator[IbPair]:
    # Freed memory is poisoned: its use, and writes beyond a buffer, appear in the log.
    with ib_pair(STANDARD, kernel_arguments="slub_debug=FZP") as hosts:
        yield hosts
        log = hosts.hypervisor.run("dmesg").stdout.splitlines()
        assert not [line for line in log if BROKEN.search(line)]


@contextmanager
def loaded(pair: IbPair, fabric: InfiniBand) -> Iterator[None]:
    """Use another fabric, without addresses and server, and restore the first."""
    guest = pair.hypervisor
    pair.fabric.unload(guest)
    try:
        fabric.load(guest)
        yield
    finally:
        guest.run("rmmod ib_fabric")
        pair.load()


def text(pair: IbPair, path: str) -> str:
    return pair.hypervisor.run(["cat", path], check=True).stdout.strip()


def wait(pair: IbPair, path: str, value: str) -> None:
    """Wait until a file contains ``value``; the kernel handles events later."""
    line = f'for i in {{1..3000}}; do [ "$(cat {path})" = "{value}" ] && exit'
    done = pair.hypervisor.run(f"{line}; sleep 0.1; done; cat {path}; exit 1")
    assert done.exit_code == 0, f"{path}: {done.stdout}"


def ping(pair: IbPair, address: str = "10.97.0.1", seconds: int = 5) -> int:
    line = f"ping -c 1 -W {seconds} -I ib0 {address}"
    return pair.hypervisor.run(line).exit_code


def both_have_carrier(pair: IbPair) -> None:
    pair.fabric.wait_for_carrier(pair.hypervisor, "ib0")
    pair.fabric.wait_for_carrier(pair.server, "ib1")


@contextmanager
def mounted(pair: IbPair, options: str) -> Iterator[Result]:
    """Mount on /mnt/t; the output of the result is the line of /proc/mounts."""
    guest = pair.hypervisor
    line = f"mount -t nfs -o soft,retry=0,{options} {pair.export} /mnt/t"
    try:
        yield guest.run(f"mkdir -p /mnt/t; {line} && grep ' /mnt/t ' /proc/mounts")
    finally:
        guest.run("umount -l /mnt/t")


def test_the_module_builds_without_a_warning(tmp_path: Path) -> None:
    module, words = build(provisioned(), tmp_path / "source", "W=1")
    assert (words, module.read_bytes()[:4]) == ("", b"\x7fELF")


def test_ib_ipoib_makes_netdevs_of_it(pair: IbPair) -> None:
    net = "/sys/class/net/ib0"
    assert text(pair, f"{net}/type") == "32"
    address = text(pair, f"{net}/address")
    assert re.fullmatch(r"80(:[0-9a-f]{2}){19}", address)
    assert address.endswith(":00:02:c9:03:00:ab:c0:01")
    shown = [text(pair, f"{net}/{name}") for name in ("carrier", "mode", "mtu")]
    assert shown == ["1", "datagram", "4092"]


def test_user_space_sees_an_hca(pair: IbPair) -> None:
    shown = pair.hypervisor.run("ibstat mlx4_0", check=True).stdout
    for line in (
        "CA type: MT25418",
        "Firmware version: 2.9.1000",
        "Hardware version: a0",
        "State: Active",
        "Physical state: LinkUp",
        "Rate: 40",
        "Base lid: 2",
        "SM lid: 1",
        "Port GUID: 0x0002c90300abc001",
        "Link layer: InfiniBand",
    ):
        assert line in shown
    shown = pair.hypervisor.run("ibv_devinfo -d mlx4_0", check=True).stdout
    shown = re.sub(r"\s+", " ", shown)
    for words in ("max_mtu: 4096 (5)", "active_mtu: 4096 (5)", "fw_ver: 2.9.1000"):
        assert words in shown
    shown = pair.hypervisor.run("rdma link", check=True).stdout
    assert "mlx4_1/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1" in shown
    assert text(pair, f"{SYS}/board_id") == "MT_0A30110009"
    assert text(pair, f"{SYS}/ports/1/pkeys/1") == "0x8001"


def test_an_empty_gid_has_no_type(pair: IbPair) -> None:
    path = f"{SYS}/ports/1/gid_attrs/types"
    assert text(pair, f"{path}/0") == "IB/RoCE v1"
    assert "Invalid argument" in pair.hypervisor.run(f"cat {path}/1").stderr


def test_sysfs_shows_a_pci_function_and_its_driver(pair: IbPair) -> None:
    guest = pair.hypervisor
    shown = [
        text(pair, f"{SYS}/device/{name}")
        for name in ("vendor", "device", "revision", "class")
    ]
    assert shown == ["0x15b3", "0x634a", "0xa0", "0x0c0600"]
    links = guest.run(
        f"readlink {SYS}/device /sys/class/net/ib0/device {SYS}/device/driver"
    ).stdout.split()
    assert [Path(link).name for link in links] == [
        "001b:00:00.0",
        "001b:00:00.0",
        "mlx4_core",
    ]
    assert "bus-info: 001b:00:00.0" in guest.run("ethtool -i ib0", check=True).stdout


def test_an_adapter_may_be_without_driver(pair: IbPair) -> None:
    guest = pair.hypervisor
    pair.fabric.unbind(guest, 0)
    assert guest.run("ls /sys/class/infiniband /sys/class/net").stdout.split() == [
        "/sys/class/infiniband:",
        "mlx4_1",
        "/sys/class/net:",
        "lo",
    ]
    pair.fabric.bind(guest, 0)
    pair.fabric.bring_up(guest, "ib0", HYPERVISOR_ADDRESSES)
    pair.fabric.wait_for_carrier(guest, "ib0")
    assert ping(pair) == 0


def test_hosts_reach_each_other(pair: IbPair) -> None:
    assert ping(pair) == 0
    assert ping(pair, address="fd00:97::1") == 0
    names = pair.server.run("hostname; ls /sys/class/net", check=True).stdout
    assert names.split() == ["server", "ib1", "lo"]


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_big_packets_pass_in_both_modes(pair: IbPair, mode: str) -> None:
    try:
        for host, netdev in ((pair.hypervisor, "ib0"), (pair.server, "ib1")):
            host.run(f"echo {mode} > /sys/class/net/{netdev}/mode", check=True)
        mtu = {"datagram": "4092", "connected": "65520"}[mode]
        wait(pair, "/sys/class/net/ib0/mtu", mtu)
        line = f"ping -c 2 -W 5 -M do -s {int(mtu) - 28} 10.97.0.1"
        # The first one may be lost while a connection is made.
        assert " 0 received" not in pair.hypervisor.run(line).stdout
    finally:
        for host, netdev in ((pair.hypervisor, "ib0"), (pair.server, "ib1")):
            host.run(f"echo datagram > /sys/class/net/{netdev}/mode", check=True)


def test_data_is_held_over_both_transports(pair: IbPair) -> None:
    """The next mount, with an empty cache, reads what one mount has written."""
    guest = pair.hypervisor
    guest.run("head -c 3000000 /dev/urandom > /tmp/data", check=True)
    mounts = (("tcp", "4.2"), ("rdma,port=20049", "3"), ("rdma,port=20049", "4.2"))
    read = "true"
    for number, (transport, version) in enumerate(mounts):
        with mounted(pair, f"proto={transport},nfsvers={version}") as shown:
            assert f"vers={version}," in shown.stdout
            assert f"proto={transport.partition(',')[0]}," in shown.stdout
            guest.run(f"{read} && cp /tmp/data /mnt/t/data{number}", check=True)
            read = f"cmp /tmp/data /mnt/t/data{number}"
    # The server's own file: /tmp is shared, mounts are not.
    pair.server.run(f"cmp /tmp/data /nfsroot{EXPORT_PATH}/data{number}", check=True)


def test_user_space_finds_the_server_by_rdma_cm(pair: IbPair) -> None:
    probe = str(Path(__file__).parents[2] / "storage/rdma_cm_probe.py")
    for port, verdict in ((20049, "listening"), (20050, "refused")):
        command = ["/usr/bin/python3", probe, pair.address, str(port)]
        assert f'"{verdict}"' in pair.hypervisor.run(command, check=True).stdout


def test_a_cable_is_pulled_and_plugged_in(pair: IbPair) -> None:
    guest = pair.hypervisor
    pair.fabric.take_down(guest, "ib0")
    try:
        wait(pair, "/sys/class/net/ib0/carrier", "0")
        assert text(pair, f"{SYS}/ports/1/state") == "1: DOWN"
        assert text(pair, f"{SYS}/ports/1/phys_state") == "2: Polling"
    finally:
        pair.fabric.bring_up(guest, "ib0", HYPERVISOR_ADDRESSES)
    wait(pair, "/sys/class/net/ib0/carrier", "1")
    assert text(pair, f"{SYS}/ports/1/state") == "4: ACTIVE"
    assert ping(pair) == 0


def test_a_copy_goes_on_after_the_cable_was_out(pair: IbPair) -> None:
    guest = pair.hypervisor
    with mounted(pair, "proto=rdma,port=20049,nfsvers=4.2,timeo=30,retrans=5"):
        writing = guest.start(
            "dd if=/dev/zero of=/mnt/t/flap bs=64k count=1000 oflag=direct"
        )
        time.sleep(0.5)
        pair.fabric.port_down(guest, "mlx4_1")
        time.sleep(1)
        assert not writing.ended
        pair.fabric.port_up(guest, "mlx4_1")
        assert writing.wait(120).exit_code == 0


def test_limited_members_do_not_reach_each_other(pair: IbPair) -> None:
    guest = pair.hypervisor
    try:
        for device in ("mlx4_0", "mlx4_1"):
            pair.fabric.set_pkeys(guest, device, (0x7FFF,))
        assert text(pair, f"{SYS}/ports/1/pkeys/0") == "0x7fff"
        # Both have joined their groups, but:
        both_have_carrier(pair)
        assert ping(pair, seconds=2) != 0
        pair.fabric.set_pkeys(guest, "mlx4_1", (0xFFFF,))
        both_have_carrier(pair)
        assert ping(pair) == 0
    finally:
        for device in ("mlx4_0", "mlx4_1"):
            pair.fabric.set_pkeys(guest, device, STANDARD.pkeys)
        both_have_carrier(pair)


def test_without_a_subnet_manager_a_port_stays_at_init(pair: IbPair) -> None:
    guest = pair.hypervisor
    pair.fabric.set_subnet_manager(guest, False)
    try:
        assert text(pair, f"{SYS}/ports/1/state") == "4: ACTIVE"
        pair.fabric.port_down(guest, "mlx4_0")
        pair.fabric.port_up(guest, "mlx4_0")
        assert text(pair, f"{SYS}/ports/1/state") == "2: INIT"
        assert text(pair, f"{SYS}/ports/1/phys_state") == "5: LinkUp"
        wait(pair, "/sys/class/net/ib0/carrier", "0")
    finally:
        pair.fabric.set_subnet_manager(guest, True)
    wait(pair, "/sys/class/net/ib0/carrier", "1")
    assert ping(pair) == 0


def test_two_ports_whose_links_take_less_than_the_hca(pair: IbPair) -> None:
    fabric = InfiniBand(
        hcas=1,
        ports=2,
        active_mtu=2048,
        device_name="mthca%d",
        hca_type="MT25204",
        pci=PciFunction(device=0x6274),
    )
    net, guest = "/sys/class/net", pair.hypervisor
    with loaded(pair, fabric):
        assert text(pair, f"{net}/ib1/dev_port") == "1"
        assert text(pair, "/sys/class/infiniband/mthca0/hca_type") == "MT25204"
        shown = guest.run("ibv_devinfo", check=True).stdout
        assert re.search(r"max_mtu:\s+4096 .*active_mtu:\s+2048", shown, re.DOTALL)
        # They do not support the MTU of the groups, so the SA refuses them ...
        time.sleep(2)
        assert text(pair, "/sys/class/infiniband/mthca0/ports/1/state") == "4: ACTIVE"
        assert text(pair, f"{net}/ib0/carrier") == "0"
        # ... until the subnet manager has other groups.
        fabric.set_group_mtu(guest, 2048)
        fabric.wait_for_carrier(guest, "ib0", "ib1")
        wait(pair, f"{net}/ib1/mtu", "2044")
        fabric.port_down(guest, "mthca0", port=2)
        wait(pair, f"{net}/ib1/carrier", "0")
        assert text(pair, f"{net}/ib0/carrier") == "1"


def test_without_fast_registration_nothing_mounts_over_rdma(pair: IbPair) -> None:
    pair.reload(InfiniBand(fast_registration=False, device_name="qib%d"))
    try:
        with mounted(pair, "proto=rdma,port=20049,nfsvers=4.2") as refused:
            assert refused.exit_code == 32
    finally:
        pair.reload(STANDARD)


REFUSED = [
    ({"hcas": 9}, "hcas=9: it is from 1 to 8"),
    ({"group_mtu": 0}, "group_mtu=0: it is 256, 512, 1024, 2048 or 4096"),
    ({"active_mtu": 4096, "hca_mtu": 2048}, "active_mtu=4096: it is from 256"),
    ({"pkeys": (0x8000,)}, 'pkeys: "0x8000" is no P_Key'),
    ({"device_name": "a%d%d"}, "device_name=a%d%d: it has one %d"),
]


def test_values_that_no_fabric_has_are_refused_with_the_reason(pair: IbPair) -> None:
    pair.fabric.unload(pair.hypervisor)
    try:
        for wrong, reason in REFUSED:
            fabric = InfiniBand(**wrong)  # type: ignore[arg-type]
            with pytest.raises(CommandFailed, match=re.escape(reason)) as refused:
                fabric.load(pair.hypervisor)
            # And without those of earlier loads.
            reasons = [said for _, said in REFUSED if said in str(refused.value)]
            assert reasons == [reason]
    finally:
        pair.load()


def test_it_is_unloaded_while_a_mount_writes_over_it(pair: IbPair) -> None:
    guest = pair.hypervisor
    with mounted(pair, "proto=rdma,port=20049,nfsvers=4.2,timeo=20,retrans=1"):
        writing = guest.start("dd if=/dev/zero of=/mnt/t/gone bs=64k oflag=direct")
        holding = guest.start("timeout 60 ibv_asyncwatch -d mlx4_0")
        time.sleep(1)
        pair.fabric.unload(guest)
        assert "ib_fabric" not in guest.run("lsmod").stdout
        assert (
            guest.run(
                "ls /sys/class/infiniband; ls /sys/bus/pci/devices | grep ^001b"
            ).stdout
            == ""
        )
        pair.load()
        writing.signal()
        holding.signal()
        writing.wait(120)
    with mounted(pair, "proto=rdma,port=20049,nfsvers=4.2") as shown:
        assert "proto=rdma" in shown.stdout
