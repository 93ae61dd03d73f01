# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import io
from contextlib import closing

import pytest
from engine_double import EngineDouble, SimHook, Status, sample_world
from ovirtsdk4.readers import HostReader
from ovirtsdk4.xml import XmlReader
from support.engine.engine_command_line import open_session

from ovirt_rdma.engine_sdk_tools.model import ClusterNetwork
from ovirt_rdma.engine_sdk_tools.reader import host_of, read_engine

pytestmark = pytest.mark.engine


def read(world, clock, **what):
    with EngineDouble(world) as double:
        with open_session(double, clock) as session:
            engine = read_engine(session, **what)
        assert double.strict_errors == []
        return engine, double.requests


def test_hundreds_of_hosts_are_few_calls(clock):
    world = sample_world(hosts=100, domains=[f"data{n}" for n in range(20)])
    engine, requests = read(
        world, clock, networks=True, nics=True, hooks=True, attachments=True
    )
    assert len(requests) == 8
    assert len(engine.hosts) == 100
    assert {len(host.nics) for host in engine.hosts} == {2}
    assert engine.version == "4.5.7"


def test_domains_have_the_status_of_their_data_center_and_their_connection(clock):
    world = sample_world(hosts=2, hosted_engine=True, iso=True, iscsi=True)
    world.connection_of("data1").mount_options = "rdma,port=20049"
    world.domain("data2").status = "maintenance"
    engine, _ = read(world, clock)
    found = {domain.name: domain for domain in engine.domains}
    assert found["hosted_storage"].hosted_engine
    assert found["hosted_storage"].master
    assert not found["data1"].hosted_engine
    assert found["data1"].status == "active"
    assert found["data2"].status == "maintenance"
    assert found["iso"].type == "iso"
    row = found["data1"].connection
    assert row.id == world.connection_of("data1").id
    assert row.export == "nfs1.example.com:/exports/data1"
    assert (row.nfs_version, row.mount_options) == ("v4_2", "rdma,port=20049")
    assert found["block1"].connection is None
    assert [c.export for c in engine.connections] == [
        f"nfs1.example.com:/exports/{n}"
        for n in ("hosted_storage", "data1", "data2", "iso")
    ]


def test_unattached_domain_is_in_no_data_center(clock):
    world = sample_world(hosts=1)
    world.domain("data2").data_center = None
    world.domain("data2").status = "unattached"
    engine, _ = read(world, clock)
    found = next(domain for domain in engine.domains if domain.name == "data2")
    assert (found.data_center, found.status) == (None, "unattached")
    assert found.connection is not None


def test_hosts_have_what_was_asked_for_and_no_more(clock):
    world = sample_world(hosts=2)
    world.host("host02").hooks = [SimHook("50_ovirt_rdma", "after_get_caps")]
    world.host("host02").status = "maintenance"
    engine, _ = read(world, clock, hooks=True)
    first, second = engine.hosts
    assert (first.spm, second.spm) == ("spm", "none")
    assert second.status == "maintenance"
    assert (first.hooks, first.nics, first.attachments) == ((), None, None)
    assert second.hooks[0].event == "after_get_caps"
    assert first.public_key.startswith("ecdsa-sha2-nistp256 ")
    assert engine.networks is None
    assert [host.name for host in engine.hosts_of(engine.data_centers[0].id)] == [
        "host01",
        "host02",
    ]


def test_nics_are_in_the_order_of_their_names(clock):
    """The engine sends them in any."""
    engine, _ = read(sample_world(hosts=3), clock, nics=True)
    names = [[nic.name for nic in host.nics] for host in engine.hosts]
    assert names == [["eth0", "ib0"]] * 3


def test_nics_and_networks(clock):
    engine, _ = read(
        sample_world(hosts=1), clock, networks=True, nics=True, attachments=True
    )
    ethernet, ipoib = engine.hosts[0].nics
    assert (ethernet.infiniband, ipoib.infiniband) == (False, True)
    assert ipoib.mtu == 2044
    attached = engine.hosts[0].attachments[0]
    assert (attached.nic, attached.in_sync) == (ethernet.id, True)
    assert attached.addresses == (f"{ethernet.address}/24",)
    assert engine.networks[0].id == attached.network
    row = engine.networks[0].clusters[0]
    assert row == ClusterNetwork(engine.clusters[0].id, True, row.usages)
    assert "management" in row.usages


def test_status_that_the_sdk_does_not_know_is_none(clock):
    world = sample_world(hosts=1)
    with EngineDouble(world) as double, open_session(double, clock) as session:
        engine = read_engine(session)
        assert engine.hosts[0].status == "up"

    class Later:
        url = "http://engine.example.com"

        def __init__(self, session):
            self._session = session

        def read_all(self, reads):
            answers = self._session.read_all(reads)
            for read_, answer in zip(reads, answers):
                if read_.path == "hosts":
                    answer[0].status = None  # what the SDK makes of a new word
            return answers

    with EngineDouble(world) as double, open_session(double, clock) as session:
        assert read_engine(Later(session)).hosts[0].status is None


def test_data_center_that_vanishes_meanwhile_is_a_sentence(clock):
    world = sample_world(hosts=1, default_data_center=True)
    gone = world.data_center("Default").id
    with EngineDouble(world) as double, open_session(double, clock) as session:
        double.fail_next("GET", f"/datacenters/{gone}/storagedomains", Status(404))
        engine = read_engine(session)
    assert len(engine.problems) == 1
    assert "reading a data center's domains" in engine.problems[0]
    assert {domain.status for domain in engine.domains} == {"active"}


def test_what_is_no_nic_is_left_out():
    """In the form of API v3 a list has its own <actions>, which the SDK reads too."""
    nics = """<host id="h1"><name>h1</name><nics>
      <actions><link href="/api/hosts/h1/nics/x" rel="x"/></actions>
      <host_nic id="n1"><name>ib0</name></host_nic>
      </nics></host>"""
    with closing(XmlReader(io.BytesIO(nics.encode()))) as reader:
        host = HostReader.read_one(reader)
    assert len(host.nics) == 2

    found = host_of(host, nics=True, attachments=False, hooks=False)

    assert [nic.name for nic in found.nics] == ["ib0"]


@pytest.mark.engine_does("HOST-02")
def test_a_cluster_upgrade_is_seen(clock):
    world = sample_world(hosts=1)
    engine, _ = read(world, clock)
    assert [c.upgrade_in_progress for c in engine.clusters] == [False]
    world.cluster("cl1").upgrade_in_progress = True
    engine, _ = read(world, clock)
    assert [c.upgrade_in_progress for c in engine.clusters] == [True]


def test_machines_that_are_paused_or_start_are_counted(clock):
    world = sample_world(hosts=2)
    host = world.host("host02")
    host.vms, host.inactive_vms = ["vm1", "vm2", "vm3"], ["vm2", "vm3"]
    engine, _ = read(world, clock)
    assert [host.vms for host in engine.hosts] == [0, 3]
