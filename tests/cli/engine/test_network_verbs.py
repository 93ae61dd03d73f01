# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

pytestmark = pytest.mark.hypervisor

CREATE = ("network", "create", "storage", "--datacenter", "dc1")
ATTACH = ("network", "attach", "storage", "--hosts", "*", "--nic-match", "ib0")
SPAN = ("--addresses", "10.20.0.11/24")


@pytest.fixture
def double():
    with EngineDouble(sample_world(hosts=3, addon=True)) as made:
        for host in made.world.hosts.values():
            host.nic("ib0").mtu = 4092
        yield made
        assert made.strict_errors == []


@pytest.fixture
def run(capsys, double):
    door = DoubleDoor(double.world)
    return lambda *words: run_engine(capsys, double, door, *words)


@pytest.fixture
def network(run, double):
    assert run(*CREATE, "--assume-yes", "--no-job").code == 0
    double.requests.clear()
    return double.world.network("storage")


def test_create_takes_the_mtu_from_the_hosts(run, double):
    result = run(*CREATE, "--assume-yes")

    assert result.code == 0
    assert double.world.network("storage").mtu == 4092
    assert "Network storage (new), MTU 4092: " in result.out
    assert "ib0 of host01" in result.out
    assert "In cl1, not required." in result.out


def test_create_dry_run(run, double):
    result = run(*CREATE, "--mtu", "2044", "--dry-run", "-o", "json")

    document = result.document
    assert (document["kind"], document["mtu"]) == ("network-create", 2044)
    assert [call["method"] for call in document["calls"]] == ["POST", "POST"]
    assert "<usages/>" in document["calls"][0]["body"].replace(" ", "").replace(
        "<usages></usages>", "<usages/>"
    )
    assert double.changes() == []


def test_create_again_has_nothing_to_do(run, double, network):
    result = run(*CREATE)

    assert result.code == 0
    assert "nothing to do" in result.out
    assert double.changes() == []


def test_create_refuses_what_a_host_cannot(run, double):
    run(*CREATE, "--mtu", "9000", "--assume-yes").refused(
        3, "host01, ", "host03", ": ib0 can have an MTU of at most 4092, not 9000"
    )


def test_attach_dry_run_shows_the_table(run, double, network):
    result = run(*ATTACH, *SPAN, "--dry-run")

    assert result.code == 0
    lines = [line.split() for line in result.out.splitlines()[:4]]
    assert lines[0][:2] + lines[0][5:7] == ["HOST", "NIC", "ADDRESS", "ACTION"]
    assert [[*line[:2], *line[4:6]] for line in lines[1:]] == [
        ["host01", "ib0", "10.20.0.11/24", "attach"],
        ["host02", "ib0", "10.20.0.12/24", "attach"],
        ["host03", "ib0", "10.20.0.13/24", "attach"],
    ]
    assert "<commit_on_success>true</commit_on_success>" in result.out
    assert double.changes() == []


def test_attach(run, double, network):
    result = run(*ATTACH, *SPAN, "--assume-yes", "--batch", "2")

    assert result.code == 0
    assert "Network storage is on 3 of 3 hosts." in result.out
    assert double.world.host("host03").nic("ib0").address == "10.20.0.13"
    ends = [line for line in result.err.splitlines() if line.startswith("[")]
    assert len(ends) == 3
    said = [e.description for e in double.world.log.events]
    assert "ovirt-rdma: network storage is on 3 of 3 hosts" in said


def test_attach_by_a_plan_file(run, double, network, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("host01: 10.20.0.31/24\nhost02: 10.20.0.32/24\n")
    words = ("network", "attach", "storage", "--hosts", "host01,host02")

    result = run(*words, "--nic-match", "ib0", "--addresses", str(plan), "-y")

    assert result.code == 0
    assert double.world.host("host02").nic("ib0").address == "10.20.0.32"


def test_attach_again_has_nothing_to_do(run, double, network):
    run(*ATTACH, *SPAN, "--assume-yes")
    before = len(double.changes())

    result = run(*ATTACH, *SPAN)

    assert result.code == 0
    assert "Nothing to do" in result.out
    assert len(double.changes()) == before


def test_attach_where_one_host_fails(run, double, network):
    double.world.host("host02").cut_off = True

    result = run(*ATTACH, *SPAN, "--assume-yes", "-o", "json")

    assert result.code == 5
    assert [row["outcome"] for row in result.document["hosts"]] == [
        "done",
        "as before",
        "not begun",
    ]
    assert "Reverting back" in result.document["hosts"][1]["sentence"]
    said = [e for e in double.world.log.events if "1 of 3" in (e.description or "")]
    assert said[0].severity == "error"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--addresses", "nowhere.yaml"), 2, "nowhere.yaml cannot be read"),
        (("--addresses", "10.20.0.300/24"), 2, "is not a range"),
        ((*SPAN, "--bond", "active-backup"), 3, "a bond needs 2"),
    ],
)
def test_attach_with_wrong_words(run, double, network, words, code, sentence):
    run(*ATTACH, *words, "--assume-yes").refused(code, sentence)
    assert double.changes() == []


BY_KIND = ("network", "attach", "storage", "--hosts", "*", *SPAN)


@pytest.fixture
def other_names(double, network):
    """Each host has other names, and a P_Key child of the partition 0x8064."""
    names = {"host01": "ib0", "host02": "ibp65s0", "host03": "ibs2f0"}
    for name, nic in names.items():
        host = double.world.host(name)
        port = host.nic("ib0")
        port.name = nic
        child = replace(port, id=f"{name}-child", name=f"{nic}.8064")
        host.nics.append(child)
    return names


def chosen(run, *words):
    """Return the NIC of each host, as a dry run shows it."""
    document = run(*BY_KIND, *words, "--dry-run", "-o", "json").document
    return {row["host"]: row["interface"] for row in document["hosts"]}


def test_hosts_with_other_names_get_the_nic_of_that_kind(run, double, other_names):
    kind = "link_layer=InfiniBand,port=1"
    found = chosen(run, "--nic-match", kind)
    assert {host: nic["name"] for host, nic in found.items()} == other_names
    assert found["host02"]["device"] == "mlx5_0"

    assert run(*BY_KIND, "--nic-match", kind, "--assume-yes", "--batch", "3").code == 0
    assert double.world.host("host02").nic("ibp65s0").address == "10.20.0.12"


@pytest.mark.parametrize("pkey", ["0x8064", "0x64", "vlan=100"])
def test_a_network_finds_the_child_of_its_partition(run, double, other_names, pkey):
    found = chosen(run, "--pkey", pkey)
    children = {host: f"{nic}.8064" for host, nic in other_names.items()}
    assert {host: nic["name"] for host, nic in found.items()} == children
    assert found["host03"]["parent"] == "ibs2f0"

    shown = run(*BY_KIND, "--pkey", pkey, "--dry-run").out.splitlines()
    assert shown[0].split()[:5] == ["HOST", "NIC", "RDMA", "PORT", "P_KEY"]
    assert shown[1].split()[:4] == ["host01", "ib0.8064", "mlx5_0/1", "0x8064"]
    assert run(*BY_KIND, "--pkey", pkey, "--assume-yes").code == 0
    assert double.world.host("host03").nic("ibs2f0.8064").address == "10.20.0.13"


def test_a_host_without_such_a_nic_is_named_with_its_nics(run, double, other_names):
    host = double.world.host("host02")
    host.nics = [nic for nic in host.nics if nic.name != "ibp65s0.8064"]
    run(*BY_KIND, "--pkey", "vlan=100", "--assume-yes").refused(
        3, "host02: 'pkey_vlan=100' matches no NIC (eth0, ibp65s0)"
    )
    assert double.changes() == []
    # Both options together.
    run(*BY_KIND, "--pkey", "0x8064", "--nic-match", "port=2").refused(
        3, "host01: 'port=2,pkey=0x8064' matches no NIC (eth0, ib0"
    )


@pytest.mark.parametrize(
    "pkey", ["8064", "0x8000", "vlan=0", "vlan=4095", "vlan=x", "backup"]
)
def test_what_is_no_partition(run, network, pkey):
    run(*BY_KIND, "--pkey", pkey).refused(2, repr(pkey), "is neither a P_Key")


def test_neither_nic_match_nor_pkey(run, network):
    run(*BY_KIND).refused(2, "neither --nic-match nor --pkey is given")


def test_create_takes_the_mtu_of_the_children(run, double, other_names):
    words = ("network", "create", "backup", "--datacenter", "dc1", "--dry-run")
    document = run(*words, "--pkey", "vlan=100", "-o", "json").document
    assert ".8064 of host" in document["because"]
