# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor's facts compared with its server's: nfs check --server-facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.command_line import run
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.facts.devices import Dcb, Ipoib, Netdev
from ovirt_rdma.host.facts.model import Facts, NfsServer, Route, to_json
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    UNKNOWN,
    compared_with_server,
)

ADDRESS = "10.0.0.1"
NFSD = NfsServer(16, ("rdma 20049", "tcp 2049"), ("3", "4.1", "4.2"))


def ethernet(name, address="", mtu=9000, **more):
    lossless = Dcb(pfc_priorities=(3,), trust="dscp")
    return Netdev(
        name,
        1,
        mtu,
        "",
        "up",
        addresses=(f"{address}/24",) if address else (),
        **{"rdma_device": "mlx5_0", "rdma_port": 1, "dcb": lossless, **more},
    )


def ib(name, address="", pkey="0x8001", mtu=2044):
    return ethernet(name, address, mtu, dcb=None, ipoib=Ipoib("datagram", pkey, None))


def host(*netdevs):
    first = netdevs[0].name
    route = Route(ADDRESS, first, "10.0.0.2")
    return Facts("hv1", "5.14", 1.0, netdevs=netdevs, routes=(route,))


def nas(*netdevs, nfsd=NFSD):
    return Facts("nas1", "6.1", 1.0, netdevs=netdevs, nfs_server=nfsd)


def compared(ours, theirs, version="auto", port=20049):
    steps, warnings = compared_with_server(ours, theirs, ADDRESS, port, version)
    assert all(step.fix for step in steps if step.verdict == NOT_READY)
    return {step.name: step.verdict for step in steps}, [one for one, _ in warnings]


SOUND = {"nfsd": READY, "version": READY, "mtu": READY}


def test_a_server_that_fits():
    steps, warnings = compared(host(ethernet("a")), nas(ethernet("b", ADDRESS)))
    assert (steps, warnings) == (SOUND, [])


@pytest.mark.parametrize(
    ("nfsd", "step", "verdict"),
    [
        (None, "nfsd", UNKNOWN),
        (replace(NFSD, listeners=None), "nfsd", UNKNOWN),
        (replace(NFSD, listeners=("tcp 2049",)), "nfsd", NOT_READY),
        (replace(NFSD, listeners=("rdma 2050",)), "nfsd", NOT_READY),
        (replace(NFSD, versions=None), "version", UNKNOWN),
        (replace(NFSD, versions=()), "version", NOT_READY),
    ],
)
def test_what_the_server_offers(nfsd, step, verdict):
    server = nas(ethernet("b", ADDRESS), nfsd=nfsd)
    assert compared(host(ethernet("a")), server)[0][step] == verdict


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("4.2", READY), ("3", READY), ("4", READY), ("4.0", NOT_READY)],
)
def test_the_version_that_the_engine_has(version, verdict):
    server = nas(ethernet("b", ADDRESS))
    assert compared(host(ethernet("a")), server, version)[0]["version"] == verdict


def test_mtu_and_flow_control_of_ethernet():
    server = nas(ethernet("b", ADDRESS, mtu=1500))
    assert compared(host(ethernet("a")), server)[0]["mtu"] == NOT_READY
    for dcb in (
        Dcb(pfc_priorities=(4,), trust="dscp"),
        Dcb(pfc_priorities=(), trust="dscp"),
        Dcb(pfc_priorities=(3,), trust="pcp"),
        Dcb(pfc_priorities=None, trust="dscp"),
        None,
    ):
        server = nas(ethernet("b", ADDRESS, dcb=dcb))
        steps, warnings = compared(host(ethernet("a")), server)
        assert (steps, len(warnings)) == (SOUND, 1), dcb


def test_an_address_on_a_vlan_above_the_port():
    base = ethernet("b", mtu=9000, uppers=("b.100",))
    vlan = ethernet(
        "b.100", ADDRESS, lowers=("b",), rdma_device=None, rdma_port=None, dcb=None
    )
    assert compared(host(ethernet("a")), nas(base, vlan)) == (SOUND, [])


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ("0x8001", "0x8001", READY),
        ("0x8001", "0x0001", READY),
        ("0x0001", "0x0001", NOT_READY),
        ("0x8001", "0x8002", NOT_READY),
        (None, "0x8001", UNKNOWN),
    ],
)
def test_partitions(ours, theirs, verdict):
    steps, warnings = compared(
        host(ib("ib0", pkey=ours)), nas(ib("ib1", ADDRESS, theirs))
    )
    assert (steps["pkey"], warnings) == (verdict, [])


def test_infiniband_and_ethernet():
    steps, _ = compared(host(ib("ib0")), nas(ethernet("b", ADDRESS, 2044)))
    assert steps["pkey"] == NOT_READY
    # IPoIB's MTU is for TCP: that of RDMA comes from the subnet manager.
    steps, _ = compared(host(ib("ib0")), nas(ib("ib1", ADDRESS, mtu=4092)))
    assert steps["mtu"] == READY


def test_netdevs_that_the_facts_do_not_show():
    steps, _ = compared(host(ethernet("a")), nas(ethernet("b", "10.0.0.9")))
    assert steps["netdevs"] == UNKNOWN and "mtu" not in steps
    without = replace(host(ethernet("a")), routes=())
    assert compared(without, nas(ethernet("b", ADDRESS)))[0]["netdevs"] == UNKNOWN


def test_the_verb(tmp_path, capsys):
    facts = soft_roce(tmp_path / "hv").reader().facts(("10.0.0.1",))
    server = nas(ethernet("b", ADDRESS, 1500), nfsd=replace(NFSD, listeners=()))
    for name, content in (("hv.json", facts), ("nas.json", server)):
        (tmp_path / name).write_text(to_json(content))
    words = ("nfs", "check", "10.0.0.1:/vm", "--facts", str(tmp_path / "hv.json"))
    words += ("--server-facts", str(tmp_path / "nas.json"), "--root", str(tmp_path))
    result = run(capsys, *words, "-o", "json")
    steps = {one["name"]: one["result"] for one in result.document["steps"]}
    assert (steps["nfsd"], steps["version"], steps["mtu"]) == ("FAIL", "PASS", "PASS")
    assert result.document["verdict"] == NOT_READY and result.code == 3
    assert "flow control" in result.document["warnings"][0]["sentence"]
    assert "on nas1: ovirt-rdma-host server check" in run(capsys, *words).out
