# SPDX-License-Identifier: GPL-2.0-or-later
"""Samples of a host: fake /proc and /sys, with the texts of Linux 6.1 and later."""

from __future__ import annotations

import os

import pytest
from support.fakes.fake_mounts import FakeMounts

from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.facts.statistics import PortCounters, SunrpcTransport
from ovirt_rdma.host.system.tree import FileTree

SWITCHES = "/sys/kernel/sunrpc/xprt-switches"
# Linux 6.1, net/sunrpc/sysfs.c: rpc_sysfs_xprt_state_show, rpc_sysfs_xprt_info_show;
# the NUL is in what 5.14 returns ("return ret + 1").
STATE = "state= CONNECTED   BOUND        \n\0"
INFO = (
    "last_used=4294937404\ncur_cong=512\ncong_win=16384\nmax_num_slots=128\n"
    "min_num_slots=2\nnum_reqs=128\nbinding_q_len=0\nsending_q_len=1\n"
    "pending_q_len=128\nbacklog_q_len=40\nmain_xprt=1\nsrc_port=0\n"
    "tasks_queuelen=169\ndst_port=20049\n"
)
ROCE = "/sys/class/infiniband/mlx5_0"


@pytest.fixture
def host(tmp_path):
    fake = FakeMounts(tmp_path)
    fake.write("/proc/uptime", "350735.47 234388.90")
    fake.nfs_mount("nas:/data", "/mnt/a", address="10.0.0.1")
    fake.nfs_mount("nas:/iso", "/mnt/b", protocol="tcp")
    return fake


def connection(
    host, name="switch-0/xprt-1-rdma", state=STATE, info=INFO, to="10.0.0.1"
):
    host.write(f"{SWITCHES}/{name}/xprt_state", state)
    host.write(f"{SWITCHES}/{name}/xprt_info", info)
    host.write(f"{SWITCHES}/{name}/dstaddr", f"{to}\n\0")
    host.unreadable(f"{SWITCHES}/{name}/srcaddr")


def sample(host):
    return read_statistics(FileTree(host.path))


def test_mounts_have_the_time_of_the_sample_and_their_address(host):
    found = sample(host)
    assert found.taken_s == 350735.47
    assert [(m.mountpoint, m.address) for m in found.mounts] == [
        ("/mnt/a", "10.0.0.1"),
        ("/mnt/b", "10.0.0.1"),
    ]
    assert not found.problems


def test_a_host_without_nfs_or_rdma_is_empty_and_no_problem(tmp_path):
    fake = FakeMounts(tmp_path)
    fake.write("/proc/uptime", "1.00 1.00")
    fake.write("/proc/self/mountstats", "device proc mounted on /proc with fstype proc")
    found = sample(fake)
    assert (found.mounts, found.transports, found.ports, found.problems) == (
        (),
        None,
        (),
        (),
    )


def test_a_connection_with_all_numbers(host):
    connection(host)
    assert sample(host).transports == (
        SunrpcTransport(
            "switch-0",
            "xprt-1-rdma",
            "rdma",
            destination="10.0.0.1",
            state=("CONNECTED", "BOUND"),
            counters={
                "last_used": 4294937404,
                "cur_cong": 512,
                "cong_win": 16384,
                "max_num_slots": 128,
                "min_num_slots": 2,
                "num_reqs": 128,
                "binding_q_len": 0,
                "sending_q_len": 1,
                "pending_q_len": 128,
                "backlog_q_len": 40,
                "main_xprt": 1,
                "src_port": 0,
                "tasks_queuelen": 169,
                "dst_port": 20049,
            },
        ),
    )


@pytest.mark.parametrize("info", ["<closed>\n", "max_num_slots=many\nnum_reqs", None])
def test_a_closed_connection_has_no_numbers_and_is_no_problem(host, info):
    """Kernels before 5.17 refuse the read (ENOTCONN), later ones show `<closed>`."""
    connection(host, state="state= BOUND\n", info=info or "")
    if info is None:
        host.unreadable(f"{SWITCHES}/switch-0/xprt-1-rdma/xprt_info")
    found = sample(host)
    (only,) = found.transports
    assert (only.connected, only.state, only.counters) == (False, ("BOUND",), {})
    assert not found.problems


def test_connections_of_all_switches(host):
    for name in (
        "switch-0/xprt-1-rdma",
        "switch-0/xprt-0-rdma",
        "switch-12/xprt-7-tcp",
    ):
        connection(host, name)
    host.write(f"{SWITCHES}/switch-0/xprt_switch_info", "num_xprts=2")
    assert [
        (one.switch, one.name, one.protocol) for one in sample(host).transports
    ] == [
        ("switch-0", "xprt-0-rdma", "rdma"),
        ("switch-0", "xprt-1-rdma", "rdma"),
        ("switch-12", "xprt-7-tcp", "tcp"),
    ]


def test_odd_values_of_a_connection_are_unknown(host):
    connection(host, info="max_num_slots=many\nbacklog_q_len=-1\nnum_reqs")
    (only,) = sample(host).transports
    assert only.counters == {}


def port(host, folder="counters", **counters):
    for counter, value in counters.items():
        host.write(f"{ROCE}/ports/1/{folder}/{counter}", value)


def test_counters_of_a_port_and_of_its_device(host):
    port(host, symbol_error="3", VL15_dropped="0")
    port(host, "hw_counters", local_ack_timeout_err=str(2**64 - 1))
    host.write(f"{ROCE}/ports/1/hw_counters/lifespan", "10")
    host.write(f"{ROCE}/hw_counters/dev_resets", "2")
    found = sample(host)
    assert found.ports == (
        PortCounters("mlx5_0", 0, {"dev_resets": 2}),
        PortCounters(
            "mlx5_0",
            1,
            {"VL15_dropped": 0, "symbol_error": 3, "local_ack_timeout_err": 2**64 - 1},
        ),
    )
    assert found.ports[1].get("symbol_error") == 3
    assert found.ports[1].get("link_downed") is None
    assert not found.problems


def test_counters_that_the_device_refuses_are_none_with_one_sentence(host):
    """A virtual function answers EINVAL to each; here a folder stands for the file."""
    port(host, symbol_error="3", VL15_dropped="0", link_downed="1")
    host.unreadable(f"{ROCE}/ports/1/counters/symbol_error")
    host.unreadable(f"{ROCE}/ports/1/counters/link_downed")
    found = sample(host)
    none = {"link_downed": None, "symbol_error": None}
    assert found.ports[0].counters == {"VL15_dropped": 0, **none}
    assert found.problems == (
        f"{ROCE}/ports/1/counters/link_downed cannot be read: Is a directory; it "
        "and 1 more there are left out",
    )


@pytest.mark.parametrize(
    "text, sentences",
    [("N/A (no PMA)", 0), ("-1", 1), ("0x10", 1), ("9" * 21, 1), ("", 1)],
)
def test_counters_that_are_no_number(host, text, sentences):
    port(host, symbol_error=text)
    found = sample(host)
    assert found.ports[0].counters == {"symbol_error": None}
    assert len(found.problems) == sentences


def test_a_device_and_a_connection_that_disappear_while_they_are_read(
    host, monkeypatch
):
    connection(host)
    connection(host, "switch-0/xprt-2-rdma")
    port(host, symbol_error="3")
    gone = (f"{SWITCHES}/switch-0/xprt-1-rdma", ROCE)
    real = FileTree.data

    def data(tree, path, problems=None, *, others=""):
        for folder in gone:
            if path.startswith(f"{folder}/"):
                os.system(f"rm -rf {host.path}{folder}")
        return real(tree, path, problems, others=others)

    monkeypatch.setattr(FileTree, "data", data)
    found = sample(host)
    assert [one.name for one in found.transports] == ["xprt-2-rdma"]
    assert found.ports == ()
    assert found.problems == (
        f"{SWITCHES}/switch-0/xprt-1-rdma disappeared during the read",
        "/sys/class/infiniband/mlx5_0 disappeared during the read",
    )
    assert len(found.mounts) == 2


def test_only_proc_and_sys_are_read_and_no_address_of_a_connection(host, monkeypatch):
    """``srcaddr`` of an RDMA connection crashes the first kernels that have it."""
    connection(host)
    port(host, symbol_error="3")
    read = []
    real = FileTree.data
    monkeypatch.setattr(
        FileTree,
        "data",
        lambda tree, path, *a, **k: read.append(path) or real(tree, path, *a, **k),
    )
    sample(host)
    assert {path.split("/")[1] for path in read} == {"proc", "sys"}
    assert not any(path.endswith("srcaddr") for path in read)


def test_without_ports_no_device_is_asked(host):
    port(host, symbol_error="3")
    assert read_statistics(FileTree(host.path), ports=False).ports == ()


def test_only_the_counters_that_are_wanted_are_asked_for(host):
    port(host, symbol_error="3", link_downed="1")
    host.unreadable(f"{ROCE}/ports/1/counters/link_downed")
    found = read_statistics(FileTree(host.path), counters={"symbol_error"})
    assert found.ports[0].counters == {"symbol_error": 3}
    assert not found.problems


def test_this_machine_is_read_without_an_error():
    assert read_statistics(FileTree("/")).taken_s > 0
