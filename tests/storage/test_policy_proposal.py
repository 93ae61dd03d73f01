# SPDX-License-Identifier: GPL-2.0-or-later
"""Check what policy a host is proposed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.host.rule_cases import ethernet, facts, ib_device, ipoib, roce_device

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.devices import Gid
from ovirt_rdma.host.facts.model import LoadLine, NfsMount, Route, load
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import AUTO, PREFER_RDMA, rule_for
from ovirt_rdma.storage.policy_proposal import proposed

TOP = Path(__file__).parents[1]
DUMPS = sorted([*TOP.glob("data/hosts/*/facts.json"), *TOP.glob("data/facts/*.json")])
GUID = "0002:c903:00fb:1231"
# 20 bytes, the last eight are the GUID of the port (RFC 4391 section 9.1.1).
IB0 = replace(
    ipoib(), address="80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31"
)
ETH0 = ethernet("eth0", rdma_device=None, rdma_port=None)
PORT = ib_device(gids=(Gid(0, f"fe80:0000:0000:0000:{GUID}"),))


def mount(source, address="10.0.0.1", protocol="tcp"):
    return NfsMount(source, "/mnt/x", "rw", "4.2", protocol, 2049, address=address)


def host(*mounts, device=PORT, **parts):
    routes = (
        Route("10.0.0.1", "ib0", "10.0.0.2"),
        Route("192.0.2.1", "eth0", "192.0.2.2"),
        Route("192.0.2.9", None, None, None, "Network is unreachable"),
    )
    return facts(
        nfs_mounts=mounts,
        routes=routes,
        netdevs=(IB0, ETH0),
        rdma_devices=(device,),
        **parts,
    )


def policy(of):
    return parse_policy(proposed(of), "p.yaml").policy


def test_an_export_that_an_rdma_port_reaches():
    of = host(mount("nas1:/export/vm"))
    (rule,) = policy(of).nfs.rules
    assert (rule.name, rule.server, rule.path) == ("nas1-vm", "nas1", "/export/vm")
    assert rule.transport == PREFER_RDMA
    said = " ".join(proposed(of).replace("#", "").split())
    assert (
        "nas1:/export/vm: mounted over TCP; 10.0.0.1 by ib0 from 10.0.0.2; mlx4_0/1 is "
        "ACTIVE and owns 10.0.0.2 " in said
    )


@pytest.mark.parametrize(
    ("source", "address", "why"),
    [
        ("nas1:/a", "192.0.2.1", "no RDMA port owns 192.0.2.2 on eth0"),
        ("nas1:/a", "192.0.2.9", "no route to 192.0.2.9: Network is unreachable"),
        ("nas1:/a", "192.0.2.7", "the route to the server is unknown"),
        ("nas1:/a", None, "the route to the server is unknown"),
        ("fuse", "10.0.0.1", "this is no export"),
        ("nas_1!:/a[z-a]", "10.0.0.1", "has a range that ends before it begins"),
        ("nas1:/\udcff", "10.0.0.1", "its name is not UTF-8"),
        ("nas1$:/a", "10.0.0.1", "'nas1$' is no server that a rule can name"),
    ],
)
def test_an_export_that_gets_no_rule_is_named_with_the_reason(source, address, why):
    of = host(mount(source, address))
    assert policy(of).nfs.rules == ()
    said = " ".join(proposed(of).replace("#", "").split())
    shown = source.replace("\udcff", "\\udcff")
    assert f"{shown}: mounted over TCP; " in said
    assert why in said


def test_an_export_is_named_once_and_names_differ():
    of = host(
        mount("nas1:/export/vm"), mount("nas1:/vm"), mount("NAS1:/export/vm"),
        mount("nas1:/"),
    )  # fmt: skip
    assert [(rule.name, rule.path) for rule in policy(of).nfs.rules] == [
        ("nas1-vm", "/export/vm"),
        ("nas1-vm-2", "/vm"),
        ("nas1-root", "/"),
    ]


def test_an_infiniband_port_that_is_up():
    (rule,) = policy(host()).host.interfaces
    assert (rule.guid, rule.transport_mode, rule.mtu) == (GUID, AUTO, AUTO)
    assert policy(host()).host.modules == ("ib_ipoib",)
    assert "mlx4_0/1 (InfiniBand, ACTIVE): ib0 has datagram mode, MTU 2044" in proposed(
        host()
    )
    line = LoadLine("/etc/modules-load.d/ib.conf", 1, "ib_ipoib")
    assert policy(host(modules={"load_lines": (line,)})).host.modules == ()


def test_ports_that_get_no_rule():
    down = host(device=ib_device(state="DOWN"))
    assert policy(down).host.is_empty
    assert "(InfiniBand, DOWN): ib0 has datagram mode, MTU 2044; no rule: it" in (
        proposed(down)
    )
    roce = host(device=roce_device())
    assert policy(roce).host.is_empty
    assert "mlx5_0/1 (Ethernet, ACTIVE): no netdev; no rule: the engine" in (
        proposed(roce)
    )
    assert policy(facts()).host.is_empty


@pytest.mark.parametrize(
    "path", DUMPS, ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_real_hosts(path):
    of = load(str(path))
    read = parse_policy(proposed(of), "p.yaml")
    assert read.warnings == ()
    for rule in read.policy.nfs.rules:
        assert any(
            rule_for(read.policy, Export.parse(one.source)).rule == rule
            for one in of.nfs_mounts
        )
    ports = {p.guid: p for d in of.rdma_devices for p in d.ports}
    for rule in read.policy.host.interfaces:
        assert ports[rule.guid].is_active
    assert max(map(len, proposed(of).splitlines())) <= 100


@given(
    st.lists(st.text(max_size=12).map(lambda t: f"nas:/{t}") | st.text(), max_size=4)
)
def test_names_of_others_are_data(sources):
    of = replace(host(*map(mount, sources)), hostname="hv1\n- evil: #")
    text = proposed(of)
    assert all(line.isprintable() for line in text.split("\n"))
    assert set(yaml.safe_load(text)) == {"version", "nfs", "host"}
    rules = parse_policy(text, "p.yaml").policy.nfs.rules
    known = [Export.maybe(source) for source in sources]
    assert all(Export(rule.server, rule.path) in known for rule in rules)
