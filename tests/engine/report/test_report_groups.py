# SPDX-License-Identifier: GPL-2.0-or-later
"""Equal hosts are drawn and listed once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_rdma.engine_sdk_tools.model import OK, Matrix
from ovirt_rdma.engine_sdk_tools.report.model import (
    MOST_ALONE,
    MOST_GROUPS,
    Device,
    PlanStep,
    Port,
    Report,
    ReportHost,
    groups_of,
    in_order,
)
from ovirt_rdma.engine_sdk_tools.report.page import _plans
from ovirt_rdma.host.facts.devices import Neighbour

pytestmark = pytest.mark.engine

PORT = Port(1, "ACTIVE", "InfiniBand", 100_000)
DEVICE = Device("mlx5_0", "ConnectX-5", "mlx5_core", "16.1", (PORT,))


def host(name, cluster="cl1", devices=(DEVICE,), **more):
    made = ReportHost(name, name, f"{name}.example.com", "dc1", cluster, "up", OK)
    return replace(made, devices=devices, paths=(), steps=(), **more)


def report(*hosts):
    none = Matrix("hosts", (), (), ())
    return Report("2026-11-23T16:00:00Z", "0.2.0", "u", "4.5.7", hosts, (), none, none)


def test_a_silent_host_is_in_no_group_of_others():
    """Not even in that of hosts that have reported to have no device."""
    others = [host(f"x{n}") for n in range(MOST_ALONE)]
    odd = [host("hv1", devices=()), host("hv2", devices=None)]
    found = groups_of(report(*odd, *others))
    groups = [[one.name for one in group.hosts] for group in found]
    assert ["hv1"] in groups
    assert ["hv2"] in groups


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        (["hv2", "hv1"], None, "hv1, hv2"),
        (["hv3", "hv1", "hv2"], None, "hv1 to hv3"),
        (["hv9", "hv10", "hv11"], None, "hv9 to hv11"),
        (["hv08", "hv09", "hv10", "hv12"], None, "hv08 to hv10, hv12"),
        (
            ["r1-n1", "r1-n2", "r2-n1", "r2-n2", "r2-n3"],
            None,
            "r1-n1, r1-n2, r2-n1 to r2-n3",
        ),
        (["hv1.a", "hv2.a", "hv3.b"], None, "hv1.a, hv2.a, hv3.b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (["hv1", "hv2", "hv3", "x", "y"], 1, "hv1 to hv3 and 2 more"),
        (["hv" + "9" * 40, "hv1"], None, "hv1, hv" + "9" * 40),
        ([f"hv{d}" for d in "\u0663\u0664"], None, "hv\u0663, hv\u0664"),
    ],
)
def test_names_in_order(names, most, text):
    assert in_order(names, most) == text


def test_few_hosts_are_drawn_one_by_one():
    hosts = [host(f"hv{n}") for n in range(MOST_ALONE, 0, -1)]
    groups = groups_of(report(*hosts))
    assert [len(group.hosts) for group in groups] == [1] * MOST_ALONE
    assert [group.hosts[0].name for group in groups][-2:] == ["hv11", "hv12"]


def test_many_are_drawn_by_cluster_and_kind():
    down = replace(DEVICE, ports=(replace(PORT, state="DOWN"),))
    newer = replace(DEVICE, firmware="16.2")
    hosts = [host(f"hv{n}", devices=(newer if n == 3 else DEVICE,)) for n in range(10)]
    hosts += [host("hv20", devices=(down,)), host("hv21", devices=None)]
    hosts += [host(f"hv{n}", "cl2") for n in (30, 31)]
    found = [
        (g.hosts[0].cluster, len(g.hosts), g.hosts[0].name)
        for g in groups_of(report(*hosts))
    ]
    assert found == [
        ("cl1", 10, "hv0"),
        ("cl1", 1, "hv20"),
        ("cl1", 1, "hv21"),
        ("cl2", 2, "hv30"),
    ]


def test_what_a_port_is_cabled_to_is_no_difference():
    hosts = []
    for n in range(40):
        its = Neighbour("switch", f"id{n // 2}", f"leaf{n // 2}", str(n), None, None)
        port = replace(PORT, neighbours=(its,) if n % 3 else ())
        hosts.append(host(f"hv{n}", devices=(replace(DEVICE, ports=(port,)),)))
    (group,) = groups_of(report(*hosts))
    assert len(group.hosts) == 40


def test_hosts_that_all_differ_are_one_last_group():
    hosts = [
        host(f"hv{n}", devices=(replace(DEVICE, name=f"d{n}"),)) for n in range(40)
    ]
    groups = groups_of(report(*hosts))
    assert len(groups) == MOST_GROUPS
    assert [group.others for group in groups] == [False] * (MOST_GROUPS - 1) + [True]
    assert sum(len(group.hosts) for group in groups) == 40


def test_a_plan_is_shown_once_for_its_hosts():
    step = PlanStep("IPOIB-MTU-01/ib0", "live", "set it", "2044", "65520", "because")
    hosts = [host("hv1"), host("hv3"), host("hv2"), host("hv4")]
    hosts[1:3] = [replace(one, steps=(step,)) for one in hosts[1:3]]
    hosts.append(host("hv5"))
    hosts[-1] = replace(hosts[-1], steps=(replace(step, after="4092"),))
    hosts.append(replace(host("hv6"), steps=None))
    plans = [sorted(names) for _, names in _plans(report(*hosts))]
    assert plans == [["hv2", "hv3"], ["hv5"]]
