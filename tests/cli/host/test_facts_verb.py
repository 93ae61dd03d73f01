# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from support.command_line import FACTS
from support.fakes.fake_hosts import connectx3_ib, connectx5_roce, soft_roce
from support.host.facts_of_everything import EVERYTHING, HCA, PF
from support.host.rule_cases import sound_server

from ovirt_rdma.cli.host import facts as facts_verb
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import (
    Adapter,
    PciIdentity,
    PKey,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import NfsServer
from ovirt_rdma.host.facts.uses import content_of

SHOWN = FACTS.parent / "facts_of_everything.txt"


@pytest.fixture
def shown(call, tmp_path):
    """Return the table of the facts."""

    def show(facts):
        path = tmp_path / "shown.json"
        path.write_text(model.to_json(facts))
        result = call("facts", "--facts", str(path))
        assert (result.code, result.err) == (0, "")
        return result.out

    return show


def test_everything_that_a_host_can_have(shown):
    _, _, text = SHOWN.read_text().partition("\n")  # below the licence
    assert shown(EVERYTHING) == text


def test_a_host_with_hundreds_of_vfs_is_still_an_overview(shown):
    vf = EVERYTHING.adapters[1]
    vfs = tuple(
        replace(
            vf, pci=replace(vf.pci, address=f"0000:{n // 256 + 5:02x}:{n % 256:02x}.0")
        )
        for n in range(508)
    )
    text = shown(replace(EVERYTHING, adapters=(PF, *vfs)))
    assert "3 of 8 (508 vfio-pci)\n" in text
    assert len(text.splitlines()) < 120


@pytest.mark.parametrize(("count", "more"), [(32, ""), (33, "1"), (508, "476")])
def test_that_an_adapter_has_more_vfs_is_said(count, more, shown):
    one = PF.virtual_functions[0]
    vfs = tuple(replace(one, number=n, address=f"0000:05:{n}") for n in range(count))
    text = shown(replace(EVERYTHING, adapters=(replace(PF, virtual_functions=vfs),)))
    assert ("0000:04:00.0  and " in text) == bool(more)
    assert f"0000:04:00.0  and {more} more  -" in text or not more


def test_a_vf_without_its_physical_function_has_a_line(shown):
    """Its physical function is on the hypervisor of this virtual machine."""
    text = shown(model.Facts("vm", "6.1", 1.0, adapters=(EVERYTHING.adapters[1],)))
    assert "0000:04:00.1  ConnectX-3 virtual function (15b3:1004 rev 00)" in text


def test_a_long_p_key_table_is_cut(shown):
    pkeys = tuple(PKey(n, f"0x{0x8001 + n:04x}") for n in range(128))
    port = replace(HCA.ports[0], pkeys=pkeys)
    text = shown(replace(EVERYTHING, rdma_devices=(replace(HCA, ports=(port,)),)))
    assert "0x800b, 0x800c, and 116 more\n" in text


def test_odd_text_in_a_facts_file_is_shown_as_it_is(shown):
    port = RdmaPort(1, "", "", "InfiniBand", pkeys=(PKey(0, "many"),))
    device = RdmaDevice("x", "CA", "", ports=(port,))
    adapter = Adapter(PciIdentity("here", "", "", ""))
    text = shown(
        model.Facts("hv1", "6.1", 1.0, adapters=(adapter,), rdma_devices=(device,))
    )
    assert "x       1     many\n" in text


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (None, None),
        (sound_server(), "16 threads, RDMA at 20049, NFS 3, 4.1, 4.2, 1 export"),
        (NfsServer(threads=0, listeners=()), "0 threads, no RDMA"),
        (NfsServer(), "unknown threads"),
    ],
)
def test_an_nfs_server_is_in_the_overview(server, expected):
    facts = model.Facts("nas", "6.1.0", 2 * 86400 + 3600, nfs_server=server)
    shown = dict(facts_verb.head(facts))
    assert (shown.get("NFS server"), shown["up for"]) == (expected, "2 days 1 h")


def test_what_cannot_be_told_is_a_dash_or_no_column(shown):
    device = RdmaDevice("a", "CA", "unknown", ports=(RdmaPort(1, "x", "y", "z"),))
    other = replace(device, name="b", driver="mlx5_core")
    text = shown(model.Facts("hv1", "6.1", 1.0, rdma_devices=(device, other)))
    assert "DEVICE  DRIVER\na       -\nb       mlx5_core\n" in text
    assert "DEVICE  PORT  STATE  LINK LAYER\na       1     x (y)  z\n" in text
    assert "None" not in text


@pytest.mark.parametrize("path", sorted(FACTS.glob("*.json")), ids=lambda p: p.stem)
def test_json_is_the_facts_file_again(call, path):
    result = call("facts", "--facts", str(path), "-o", "json")
    assert result.out == json.dumps(json.loads(path.read_text()), indent=2) + "\n"
    assert list(result.document)[:2] == ["schema_version", "kind"]
    as_yaml = call("facts", "--facts", str(path), "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == result.document


def test_a_host_without_anything(host):
    result = host("facts")
    assert result.code == 0
    assert "RDMA ports: none\n" in result.out
    assert "NFS mounts: none\n" in result.out
    assert "could not be read\n" in result.out
    assert host("facts", "-o", "json").document["rdma_devices"] == []


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (59.9, "0 min"),
        (3600 * 2 + 61, "2 h 1 min"),
        (86400, "1 day 0 h"),
        (2 * 86400 + 3600, "2 days 1 h"),
    ],
)
def test_uptime(call, tmp_path, seconds, shown):
    facts = replace(soft_roce(tmp_path).reader().facts(), uptime_s=seconds)
    path = tmp_path / "f.json"
    path.write_text(model.to_json(facts))
    lines = call("facts", "--facts", str(path)).out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines if line[:6] == "up for"] == [
        shown
    ]


def test_bytes_that_are_no_utf8_and_terminal_controls_do_not_reach_the_terminal(
    call, tmp_path
):
    root = connectx5_roce(tmp_path)
    root.nfs_mount("nas:/\udcff", "/mnt/\x1b[2J\udcff")
    path = tmp_path / "f.json"
    path.write_text(model.to_json(root.reader().facts()))
    shown = call("facts", "--facts", str(path)).out
    assert "/mnt/\\x1b[2J\\udcff" in shown
    assert shown.replace("\n", "").isprintable()
    dumped = call("facts", "--facts", str(path), "-o", "json")
    assert dumped.document["nfs_mounts"][0]["mountpoint"] == "/mnt/\x1b[2J\udcff"
    as_yaml = yaml.safe_load(call("facts", "--facts", str(path), "-o", "yaml").out)
    assert as_yaml == json.loads(dumped.out)


FABRIC = FACTS / "ib-fabric-children-and-bond.json"


def test_only_the_interfaces(call):
    arguments = ("facts", "--interfaces", "--facts", str(FABRIC))
    result = call(*arguments)
    assert (result.code, result.err) == (0, "")
    host, *_, first, second = result.out.splitlines()[:5]
    assert host.split() == ["host", "hv1"]
    assert first.split()[:4] == ["NETDEV", "LINK", "LAYER", "DRIVER"]
    assert second.split()[:3] == ["bond0", "InfiniBand", "bond"]
    assert "0x8007 (VLAN 7)" in result.out
    document = call(*arguments, "-o", "json").document
    assert (document["schema_version"], document["kind"]) == (1, "interfaces")
    (child,) = (i for i in document["interfaces"] if i["name"] == "ib0.8007")
    assert (child["parent"], child["pkey"], child["pkey_vlan"]) == ("ib0", "0x8007", 7)


def test_what_each_netdev_is_needs_few_tools(call, tmp_path, monkeypatch):
    """Ansible waits for it in each gathering of facts."""
    host = connectx3_ib(tmp_path)
    host.write("/proc/sys/kernel/hostname", "hv1")
    # A storage server behind a router.
    host.nfs_mount("10.9.9.9:/data", "/rhev/x", "tcp", address="10.9.9.9")
    host.route("10.9.9.9", "ib1", "10.0.0.2")
    # A VM that migrates.
    host.tcp_connections(("10.0.0.2", 16514, "10.0.0.6", 50000))
    host.tcp_connections(("10.0.0.2", 49152, "10.0.0.6", 7))
    reader = HostReader(tmp_path, host.runner)
    expected = content_of(reader.facts())
    host.runner.ran.clear()
    monkeypatch.setattr(facts_verb, "HostReader", lambda root: reader)
    found = call("facts", "--interfaces", "-o", "json").document
    assert {name: found[name] for name in expected} == expected
    roles = {one["name"]: one["roles"] for one in found["interfaces"]}
    assert (roles["ib0"], roles["ib1"]) == (["migration"], ["storage"])
    assert found["host"] == "hv1"
    assert {argv[0] for argv in host.runner.ran} == {"ip"}
