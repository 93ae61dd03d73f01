# SPDX-License-Identifier: GPL-2.0-or-later
"""PCIE-01, PORT-ERRORS-01, and parts of the NFS rules beside the traps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.rule_cases import facts, findings, roce_device

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    Adapter,
    Netdev,
    PciLink,
)
from ovirt_rdma.host.facts.model import (
    Activity,
    ConnectionActivity,
    ModuleParameter,
    Modules,
    MountActivity,
    NfsMount,
    PortActivity,
    PortError,
    Requests,
)
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules import adapters, nfs

DEVICE = roce_device(rate_mbps=100_000, data_rate_mbps=100_000)
ADDRESS = DEVICE.pci.address


def with_adapter(**parts):
    adapter = Adapter(DEVICE.pci, **parts)
    return facts(rdma_devices=(DEVICE,), adapters=(adapter,))


@pytest.mark.parametrize(
    "speed, width, mbps",
    [
        # Linux, drivers/pci/pci.h, PCIE_SPEED2MBS_ENC: 2000, 4000, 7876, 15753, 31507
        # and 63015 for a lane.
        (2.5, 1, 2000),
        (5.0, 8, 32000),
        (8.0, 1, 7876),
        (8.0, 8, 63015),
        (16.0, 16, 252061),
        (32.0, 16, 504123),
        (64.0, 1, 60500),
        (None, 8, None),
        (1e308, 8, None),
        (-8.0, 8, None),
        (8.0, None, None),
    ],
)
def test_what_a_link_carries(speed, width, mbps):
    assert adapters.mbps(speed, width) == mbps


@pytest.mark.parametrize(
    "link, verdict, words",
    [
        (PciLink(8.0, 16, 16.0, 16, 8.0, 16), "PASS", "carries 126030 Mb/s"),
        (PciLink(8.0, 16), "PASS", "enough for all together (100000 Mb/s)"),
        (PciLink(8.0, 4, 8.0, 16, 8.0, 16), "WARN", "the link could be faster"),
        (PciLink(2.5, 16, 8.0, 16, 8.0, 16), "WARN", "seat the card again"),
        (PciLink(8.0, 8, 8.0, 16, 8.0, 8), "WARN", "the slot has 8 GT/s x8"),
        (PciLink(8.0, 8, 8.0, 8, 16.0, 16), "WARN", "the card can have 8 GT/s x8"),
        (PciLink(8.0, 8), "WARN", "the card can have unknown"),
        (PciLink(None, None, 8.0, 16), "SKIP", "does not show its PCIe link"),
        (None, "SKIP", "does not show its PCIe link"),
    ],
)
def test_a_link_against_its_port(judged, link, verdict, words):
    judged(adapters.PCIE, with_adapter(pci_link=link), None, ADDRESS, verdict, words)


def test_two_ports_that_together_have_more_than_the_link_are_no_fault():
    ports = tuple(
        roce_device(number=n, data_rate_mbps=100_000).ports[0] for n in (1, 2)
    )
    device = roce_device()
    device = type(device)(**{**vars(device), "ports": ports})
    link = PciLink(8.0, 16)
    host = facts(
        rdma_devices=(device,),
        adapters=(Adapter(device.pci, pci_link=link),),
    )
    verdict, text = findings(adapters.PCIE, host)[ADDRESS]
    assert verdict == "PASS"
    words = "enough for one of its ports, not for all together (200000 Mb/s)"
    assert words in text


def test_a_virtual_function_has_no_link_of_its_own():
    link = PciLink(8.0, 1)
    host = with_adapter(pci_link=link, physical_function="0000:3b:00.0")
    assert findings(adapters.PCIE, host)["host"][0] == "SKIP"


def test_the_rate_of_a_bond_may_be_that_of_all_its_ports():
    bond = roce_device("mlx5_bond_0", data_rate_mbps=200_000)
    adapter = Adapter(bond.pci, pci_link=PciLink(8.0, 16))
    host = facts(rdma_devices=(bond,), adapters=(adapter,))
    assert findings(adapters.PCIE, host)["host"][0] == "SKIP"


def with_port(*errors, seconds=2.0, packets=None, new_packets=0, read=True):
    port = PortActivity("mlx5_0", 1, read, packets, new_packets, errors)
    return facts(rdma_devices=(DEVICE,), activity=Activity(seconds, ports=(port,)))


def counted(name, value, grown=0, **more):
    """A port with one counter that is not 0."""
    return with_port(PortError(name, value, grown), **more)


MILLION, FEW = {"packets": 1_000_000}, "few errors"
LINK, LOST = "the link had errors", "packets were lost"
RETRIES = "connections ended since boot: max_retry_exceeded 11 | see that the servers"


@pytest.mark.parametrize(
    "host, verdict, words",
    [
        (with_port(), "PASS", "error counters are 0"),
        (with_port(read=False), "SKIP", "no error counters"),
        # 10^-12 at 100 Gb/s: 360 in the hour since boot.
        (counted("symbol_error", 350), "PASS", FEW),
        (
            counted("symbol_error", 370),
            "WARN",
            f"{LINK} since boot: symbol_error 370 |",
        ),
        (counted("port_rcv_errors", 10), "PASS", FEW),
        (counted("port_rcv_errors", 11), "WARN", "port_rcv_errors 11"),
        # One wrong bit in some seconds is allowed to a fast link.
        (counted("symbol_error", 20, 1), "PASS", FEW),
        (counted("symbol_error", 20, 10), "PASS", FEW),
        (
            counted("symbol_error", 20, 11),
            "WARN",
            f"{LINK} in the last 2.0 s: symbol_error +11 to 20 |",
        ),
        (
            counted("symbol_error", 370, 1),
            "WARN",
            f"{LINK} since boot: symbol_error +1 to 370 |",
        ),
        (counted("packet_seq_err", 900), "PASS", FEW),
        (counted("packet_seq_err", 900, **MILLION), "PASS", FEW),
        (
            counted("packet_seq_err", 1100, **MILLION),
            "WARN",
            f"{LOST} since boot: packet_seq_err 1100 | look for full buffers",
        ),
        (
            counted("packet_seq_err", 900, 200, new_packets=100_000),
            "WARN",
            f"{LOST} in the last 2.0 s: packet_seq_err +200 to 900 |",
        ),
        (counted("packet_seq_err", 900, 90, new_packets=1000), "PASS", FEW),
        (counted("max_retry_exceeded", 10), "PASS", FEW),
        (counted("max_retry_exceeded", 11), "WARN", RETRIES),
    ],
)
def test_error_counters(judged, host, verdict, words):
    judged(adapters.PORT_ERRORS, host, None, "mlx5_0/1", verdict, words)


@pytest.mark.parametrize(
    "name",
    [
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
        "max_retry_exceeded",
        "retry_exceeded_err",
        "retry_rnr_exceeded_err",
    ],
)
def test_a_port_that_gives_up_its_repeats_does_not_pass(judged, name):
    packets = {"packets": 10**9, "new_packets": 10**8}
    for grown in (1, 50_000):
        host = with_port(PortError(name, 50_000, grown), **packets)
        judged(
            adapters.PORT_ERRORS,
            host,
            None,
            "mlx5_0/1",
            "WARN",
            f"connections ended in the last 2.0 s: {name} +{grown}",
        )


@pytest.mark.parametrize("name", ["port_rcv_errors", "max_retry_exceeded"])
def test_errors_of_an_unknown_time_are_not_few(judged, name):
    host = replace(with_port(PortError(name, 10**6)), uptime_s=0.0)
    judged(adapters.PORT_ERRORS, host, None, "mlx5_0/1", "SKIP", name)


def test_a_counter_that_this_version_does_not_know_is_no_error():
    host = with_port(PortError("of_another_version", 10**9, 10**9))
    assert findings(adapters.PORT_ERRORS, host)["mlx5_0/1"][0] == "PASS"


def test_a_port_without_link_is_not_judged():
    down = roce_device(state="DOWN")
    errors = (PortError("symbol_error", 10**9, 10**9),)
    activity = Activity(2.0, ports=(PortActivity("mlx5_0", 1, True, errors=errors),))
    host = facts(rdma_devices=(down,), activity=activity)
    assert findings(adapters.PORT_ERRORS, host)["host"][0] == "SKIP"


def test_an_active_port_whose_counters_were_not_read_is_said():
    host = facts(rdma_devices=(DEVICE,), activity=Activity(2.0))
    verdict, words = findings(adapters.PORT_ERRORS, host)["host"]
    assert (verdict, words) == ("SKIP", "no counters of an ACTIVE port were read | ")


MOUNT = NfsMount("nas:/a", "/mnt/a", "rw", version="4.2", protocol="rdma")


def with_mount(connections=2, **done):
    mount = replace(MOUNT, protocols=("rdma",) * connections)
    done["connections"] = connections
    activity = Activity(1.5, mounts=(MountActivity("/mnt/a", **done),))
    return facts(nfs_mounts=(mount,), activity=activity)


PATHS = ("10.0.0.1", "10.0.2.1")


def over_paths(host, *connections, paths=PATHS):
    """The host with these connections, and findings for a rule with ``paths``."""
    mount = replace(host.nfs_mounts[0], address=PATHS[0])
    activity = replace(host.activity, connections=connections)
    rule = NfsRule(1, "r", "nas", transport="require-rdma", paths=paths)
    host = replace(host, nfs_mounts=(mount,), activity=activity)
    return host, Policy(nfs=NfsPolicy((rule,)))


WAITS = {to: ConnectionActivity(to, to, ("CONNECTED",), waits=True) for to in PATHS}
IS_BLOCKED = "requests wait on 1 of 2 connections where none is"
IS_NOT = "none of its connections is blocked; it has 2"


@pytest.mark.parametrize(
    "done, connections, paths, verdict, words",
    [
        ({"still": 2}, [WAITS[PATHS[0]]], (), "FAIL", IS_BLOCKED),
        ({"still": 2}, [WAITS[PATHS[1]]], PATHS, "FAIL", IS_BLOCKED),
        ({"still": 1}, WAITS.values(), PATHS, "FAIL", IS_BLOCKED),
        # All of its connections work, or it is that of another server.
        ({}, WAITS.values(), PATHS, "PASS", IS_NOT),
        ({"still": 2}, [WAITS[PATHS[1]]], (), "PASS", IS_NOT),
        ({"still": 2}, [WAITS[PATHS[1]]], PATHS[1:], "PASS", IS_NOT),
        ({"unanswered": 1}, [], (), "WARN", "1 of 2 connections sent requests and got"),
        ({"still": 2}, [], (), "PASS", IS_NOT),
    ],
)
def test_connections_that_are_blocked_or_may_be(
    judged, done, connections, paths, verdict, words
):
    host, policy = over_paths(with_mount(**done), *connections, paths=paths)
    judged(nfs.NCONNECT, host, policy, "nas:/a", verdict, words)


def test_a_connection_over_a_second_path_that_cannot_be_made():
    first = ConnectionActivity("switch-0/xprt-0-rdma", PATHS[0], ("CONNECTED",))
    second = ConnectionActivity("switch-0/xprt-1-rdma", PATHS[1], ("CONNECTING",))
    host, policy = over_paths(with_mount(), first, second)
    verdict, text = findings(nfs.LISTENER, host, policy)["nas:/a"]
    assert verdict == "WARN"
    both = "1 of 2 connections to 10.0.0.1 or 10.0.2.1 cannot be made again"
    assert text.startswith(both)
    host, policy = over_paths(with_mount(), second)
    assert findings(nfs.LISTENER, host, policy)["nas:/a"][0] == "WARN"


def test_a_connection_that_breaks_now(judged):
    host = with_mount(operations=900, new_connects=1, new_retransmissions=40)
    judged(
        nfs.RESET,
        host,
        None,
        "nas:/a",
        "WARN",
        "a connection broke within the last 1.5 s and 40 requests",
    )


def test_few_reconnects_are_no_sign_of_a_server_that_resets():
    """Such as one restart of the server, after which all requests are sent again."""
    once = {"operations": 1000, "retransmissions": 50, "connections": 2}
    host = with_mount(**once, connects=4)
    assert findings(nfs.RESET, host)["nas:/a"][0] == "PASS"
    host = with_mount(**once, connects=5)
    assert findings(nfs.RESET, host)["nas:/a"][0] == "WARN"


def test_a_reconnect_after_an_idle_time_is_no_break():
    host = with_mount(operations=900, new_connects=1, connects=40)
    assert findings(nfs.RESET, host)["nas:/a"][0] == "PASS"


HIDDEN = "its counters do not show if its data uses its connection"


def test_data_of_a_pnfs_layout_goes_to_other_servers():
    host = with_mount(server_read=1 << 40, reads=1, layout="LAYOUT_FLEX_FILES")
    mount = replace(host.nfs_mounts[0], options="rw,rsize=1048576")
    host = replace(host, nfs_mounts=(mount,))
    verdict, text = findings(nfs.LOCALIO, host)["nas:/a"]
    assert (verdict, text) == ("SKIP", f"{HIDDEN} | ")


@pytest.mark.parametrize(
    "enabled, reads, address, verdict, words",
    [
        ("Y", 0, "10.0.0.1", "WARN", "says nothing about the data"),
        # The server of a container, or of another address.
        ("Y", 63, "10.0.0.9", "WARN", "says nothing about the data"),
        ("Y", 64, "10.0.0.1", "SKIP", HIDDEN),
        ("Y", 64, "10.0.0.9", "PASS", "its data uses its connection"),
        ("N", 64, "10.0.0.1", "PASS", "its data uses its connection"),
        (
            "N",
            63,
            "10.0.0.1",
            "PASS",
            "its data uses its connection since LOCALIO was disabled; before that, "
            "67108864 bytes were read with 63 requests",
        ),
    ],
)
def test_data_past_the_connection(enabled, reads, address, verdict, words):
    """A mount of this host's own server, from which 64 MiB were read."""
    host = with_mount(server_read=64 << 20, reads=reads)
    options = "rw,rsize=1048576"
    mount = replace(host.nfs_mounts[0], options=options, address=address)
    mac, own = "52:54:00:00:00:01", ("10.0.0.1/24",)
    netdev = Netdev("eth0", ARPHRD_ETHER, 1500, mac, "up", addresses=own)
    modules = Modules(parameters=(ModuleParameter("nfs", "localio_enabled", enabled),))
    host = replace(host, nfs_mounts=(mount,), netdevs=(netdev,), modules=modules)
    found, text = findings(nfs.LOCALIO, host)["nas:/a"]
    assert (found, text.partition(" | ")[0].endswith(words)) == (verdict, True)


# Counters of Debian's 6.12.117 with LOCALIO (tests/lab/test_localio_lab.py): 128 MiB
# read and 20 MiB written, with and without O_DIRECT, while it was enabled or not.
LOCALIO_COUNTED = {
    "Y": (134217728, 0, 20971520, 0),
    "N": (134217728, 1089, 20971520, 80),
}


@pytest.mark.parametrize("version", ["4.2", "3"])
@pytest.mark.parametrize("enabled", LOCALIO_COUNTED)
@pytest.mark.parametrize("kind", ["reads", "writes"])
def test_counters_of_a_kernel_with_localio(version, enabled, kind):
    read, reads, written, writes = LOCALIO_COUNTED[enabled]
    done = {"server_read": read, "reads": reads}
    what = f"{read} bytes were read with 0 requests"
    if kind == "writes":
        done = {"server_written": written, "writes": writes}
        what = f"{written} bytes were written with 0 requests"
    host = with_mount(1, **done)
    options = f"rw,vers={version},rsize=1048576,wsize=1048576"
    mount = replace(host.nfs_mounts[0], version=version, options=options)
    modules = Modules(parameters=(ModuleParameter("nfs", "localio_enabled", enabled),))
    host = replace(host, nfs_mounts=(mount,), modules=modules)
    verdict, text = findings(nfs.LOCALIO, host)["nas:/a"]
    if enabled == "N":
        assert (verdict, text) == ("PASS", "its data uses its connection | ")
    else:
        assert (verdict, text.partition(":")[0]) == ("WARN", what)


def test_connections_to_another_address_are_not_those_of_the_mount(judged):
    """A path was moved with dstaddr, or the kernel has no such files."""
    host = with_mount()
    mount = replace(host.nfs_mounts[0], address="10.0.0.1")
    elsewhere = ConnectionActivity("switch-0/xprt-0-rdma", "10.9.9.9")
    activity = replace(host.activity, connections=(elsewhere,))
    host = replace(host, nfs_mounts=(mount,), activity=activity)
    judged(nfs.LISTENER, host, None, "nas:/a", "SKIP", "no connection to 10.0.0.1")


@pytest.mark.parametrize(
    "slots_set, verdict", [(2, "WARN"), (127, "WARN"), (128, "SKIP")]
)
def test_a_setting_with_fewer_slots_than_the_kernels(slots_set, verdict):
    found = findings(nfs.SLOTS, facts(rdma_slots=slots_set))["host"]
    assert found[0] == verdict
    if verdict == "WARN":
        assert f"have {slots_set} slots" in found[1]


def test_a_long_wait_without_backlog_has_another_cause():
    host = with_mount(new_reads=Requests(100, 900_000, 0), operations=100, sends=100)
    assert findings(nfs.SLOTS, host)["nas:/a"][0] == "PASS"


def test_a_backlog_without_long_waits_says_nothing_of_250_ms():
    host = with_mount(operations=100, sends=100, backlog=300)
    verdict, text = findings(nfs.SLOTS, host)["nas:/a"]
    assert verdict == "WARN"
    assert "on average 3.00 requests waited" in text
    assert "250 ms" not in text


# Slots; requests, their queue_ms and rtt_ms, and bklog_u. Read off mountstats in the
# lab with kernels of Debian: direct reads of 4 KiB, in bursts (b) or a constant queue.
RECORDED = {
    "6.1.170 NFS 3 b20": (16, 780, 6740, 4423, 53, True),
    "6.1.170 NFS 3 b20, a small backlog": (16, 500, 7245, 3672, 5, True),
    "6.1.170 NFS 3 b24, a small backlog": (16, 576, 8161, 3942, 3, True),
    "6.1.170 NFS 3 b40": (16, 920, 12888, 6143, 2384, True),
    "6.1.170 NFS 3 20": (16, 5336, 49330, 17330, 1964, True),
    "6.1.170 NFS 3 40": (16, 8299, 45040, 18306, 16311, True),
    "6.1.170 NFS 4.2 b20": (16, 500, 7347, 4340, 81, True),
    "6.1.170 NFS 4.2 b40": (16, 920, 16850, 7198, 1935, True),
    "6.1.170 NFS 4.2 40": (16, 3537, 61767, 29634, 9301, True),
    "6.1.170 NFS 3 b20, more slots": (128, 7800, 2578, 43607, 0, False),
    "6.1.170 NFS 3 b40, more slots": (128, 9160, 6457, 79738, 0, False),
    "6.1.192 NFS 3 b18": (16, 3384, 7477, 37024, 38, False),
    "6.1.192 NFS 3 b20": (16, 2480, 10944, 38491, 117, False),
    "6.1.192 NFS 3 b40": (16, 3320, 43041, 43605, 7470, False),
    "6.1.192 NFS 3 20": (16, 7337, 5018, 22940, 172, False),
    "6.1.192 NFS 3 40": (16, 7338, 40600, 37819, 18443, False),
    "6.1.192 NFS 4.2 b20": (16, 4200, 13803, 37594, 120, False),
    "6.1.192 NFS 4.2 b40": (16, 3920, 53472, 50866, 6030, False),
    "6.1.192 NFS 4.2 40": (16, 2764, 47787, 40782, 5583, False),
}


SLEEPS = "6.1.170 NFS 3 b24, a small backlog"


def with_slots(slots_set, count, queue_ms, rtt_ms, backlog, **more):
    """A mount that did all of that between the two samples."""
    done = {"operations": count, "sends": count, "backlog": backlog} | more
    totals = ("operations", "sends", "backlog")
    reads = Requests(count, queue_ms, rtt_ms)
    grown = {f"new_{name}": done[name] for name in totals}
    host = with_mount(**{"new_reads": reads, **grown, **done})
    connection = ConnectionActivity("xprt-0-rdma", "10.0.0.1", slots_max=slots_set)
    mount = replace(host.nfs_mounts[0], address="10.0.0.1")
    activity = replace(host.activity, connections=(connection,))
    return replace(host, nfs_mounts=(mount,), activity=activity)


@pytest.mark.parametrize("name", RECORDED)
def test_the_sleep_of_250_ms_is_told_by_its_behaviour(name):
    *counted, sleeps = RECORDED[name]
    host = with_slots(*counted)
    verdict, text = findings(nfs.SLOTS, host)["nas:/a"]
    assert ("250 ms" in text) == sleeps, text
    assert verdict == ("WARN" if host.activity.mounts[0].backlog else "PASS")


@pytest.mark.parametrize(
    "more",
    [
        {"new_connects": 1},
        {"new_retransmissions": 2},
        # Of another mount over the same connections, whose waits are not counted here.
        {"sends": 1200},
    ],
)
def test_a_wait_for_something_else_is_no_sleep_without_slot(judged, more):
    *counted, _ = RECORDED[SLEEPS]
    judged(nfs.SLOTS, with_slots(*counted, **more), None, "nas:/a", "PASS", "rarely")


# By a simulation: 3000 reads a second, and 300 writes of 1 MiB at once.
BOTH = {
    "new_reads": Requests(29_700, 120_000, 6_000),
    "new_writes": Requests(300, 36_000, 19_000),
}


@pytest.mark.parametrize(
    ("counted", "more"),
    [
        # A server that takes 32 requests at once: 96 more have slots and wait for it.
        ((128, 5000, 5000 * 32, 5000 * 8, 5000 * 4), {}),
        # A long backlog, which comes in bursts: those that came last wait long.
        ((128, 5000, 5000 * 300, 5000 * 30, 5000 * 80), {}),
        # Too few requests, and too short a wait for a sleep.
        ((16, 19, 275, 130, 1), {}),
        ((16, 100, 240, 20, 5), {}),
        # Quick reads behind slow writes.
        ((128, 30_000, 156_000, 25_000, 440_000), BOTH),
    ],
)
def test_a_wait_that_may_have_another_cause_is_no_sleep_without_slot(counted, more):
    host = with_slots(*counted, **more)
    assert "250 ms" not in findings(nfs.SLOTS, host)["nas:/a"][1]


def test_a_sleep_of_the_past_is_not_reported_as_of_now():
    _, count, _, _, backlog, _ = RECORDED[SLEEPS]
    host = with_mount(operations=count, sends=count, backlog=backlog)
    assert "rarely" in findings(nfs.SLOTS, host)["nas:/a"][1]


def test_a_lost_connection_of_the_past_hides_no_sleep():
    *counted, _ = RECORDED[SLEEPS]
    host = with_slots(*counted, connects=9)
    assert "250 ms" in findings(nfs.SLOTS, host)["nas:/a"][1]
