# SPDX-License-Identifier: GPL-2.0-or-later
"""smpquery and lldptool show what ports are cabled to; all else is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_adapters import lldp_text, node_info
from support.fakes.fake_hosts import connectx3_ib, connectx5_roce, soft_roce
from support.fakes.fake_processes import run_process
from support.golden.golden_mlx5 import virtual_functions
from support.mutation import mutated

from ovirt_rdma.host.collect.netdevs import infiniband_neighbour, lldp_neighbour
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import Neighbour
from ovirt_rdma.host.system.commands import CommandFailed, CommandTimeout, NotInstalled

pytestmark = pytest.mark.hypervisor

LEAF = Neighbour("switch", "ec0d:9a03:00f5:1230", "leaf1", "7", None, None)
TOR = Neighbour("switch", "00:1c:73:aa:00:01", "leaf1", "Ethernet1/7", "to hv1", "eth0")
INFO = node_info("Switch", "0xec0d9a0300f51230", 7, "0,1")
# VDSM 4.50, tests/network/unit/lldpad_test.py, but for what is not read.
OF_VDSM = """\
Chassis ID TLV
\tMAC: 01:23:45:67:89:ab
Port ID TLV
\tLocal: 588
Time to Live TLV
\t120
System Name TLV
\tsite1-row2-rack3
System Capabilities TLV
\tSystem capabilities:  Bridge, Router
\tEnabled capabilities: Bridge, Router
Port Description TLV
\tsome important server, port 4
Unidentified Org Specific TLV
\tOUI: 0x009069, Subtype: 1, Info: 504533373135323130333833
End of LLDPDU TLV
"""


# ------------------------------------------------------------------ InfiniBand


# libibmad fills up to 32 characters, and smpquery puts one dot before more.
LONG = "MF0;leaf-with-a-long-name-of-rack-7:MSB7700/U1"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("Switch", "Node Description:...........................leaf1\n", LEAF),
        ("Switch", f"Node Description:.{LONG}\n", replace(LEAF, name=LONG)),
        ("Switch", None, replace(LEAF, name=None)),
        ("Switch", "Node Description:......\n", replace(LEAF, name=None)),
        ("Channel Adapter", None, replace(LEAF, kind="host", name=None)),
        ("Router", None, replace(LEAF, kind="router", name=None)),
        ("?(9)?", None, replace(LEAF, kind=None, name=None)),
    ],
)
def test_a_node_with_its_kind_name_and_port(kind, text, expected):
    assert infiniband_neighbour(INFO.replace("Switch", kind), text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        INFO[:200],
        INFO.replace("Guid:", "Gu1d:"),
        INFO.replace("0xec0d9a0300f51230", "0xec0d"),
        INFO.replace("LocalPort:.......................7", "LocalPort:..............."),
        INFO.replace("LocalPort:.......................7", "LocalPort:.......7777777"),
        "smpquery: iberror: failed: operation nodeinfo: node info query failed\n",
    ],
)
def test_torn_or_other_text_is_unknown(text):
    assert infiniband_neighbour(text, None) is None


# ------------------------------------------------------------------ Ethernet


def test_a_switch_by_lldp():
    assert lldp_neighbour(lldp_text(), "eth0") == TOR
    found = lldp_neighbour(OF_VDSM, "eth0")
    assert (found.kind, found.id) == ("switch", "01:23:45:67:89:ab")
    assert (found.name, found.port) == ("site1-row2-rack3", "588")
    assert found.port_title == "588 (some important server, port 4)"


@pytest.mark.parametrize(
    ("port", "description", "title"),
    [
        ("Ifname: swp7", "swp7", "swp7"),
        ("Ifname: swp7", "", "swp7"),
        ("MAC: 00:1c:73:aa:00:07", "swp7", "00:1c:73:aa:00:07 (swp7)"),
        ("Bad Port ID: 00ff", "swp7", "swp7"),
        ("Invalid length = 0", "", None),
        ("Interface Alias: a: b", "", "a: b"),
    ],
)
def test_the_port_as_the_switch_names_it(port, description, title):
    found = lldp_neighbour(lldp_text(port=port, description=description), "eth0")
    assert found.port_title == title


@pytest.mark.parametrize(
    ("enabled", "kind"),
    [
        ("Bridge", "switch"),
        ("Router", "switch"),
        ("Station Only", "host"),
        ("", None),
        ("Telephone", None),
    ],
)
def test_capabilities_say_what_it_is(enabled, kind):
    assert lldp_neighbour(lldp_text(enabled=enabled), "eth0").kind == kind


def test_a_host_whose_lldpad_says_only_what_it_must_is_of_no_kind():
    text = (
        "Chassis ID TLV\n\tMAC: aa\nPort ID TLV\n\tMAC: aa\nTime to Live TLV\n\t120\n"
    )
    assert lldp_neighbour(text, "eth0") == Neighbour(
        None, "aa", None, "aa", None, "eth0"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Agent instance for device not found\n",
        "Chassis ID TLV\n",
        "Chassis ID TLV\n\tPort ID TLV\n\tTime to Live TLV\n\t120\n",
        "Chassis ID TLV\n\tBad Chassis ID: 09\nSystem Name TLV\n\t \n",
        "corrupted TLV ilen=3, tlv_len=4\n",
    ],
)
def test_no_neighbour_is_unknown(text):
    assert lldp_neighbour(text, "eth0") is None


def test_a_name_without_an_id_is_enough():
    text = "Chassis ID TLV\n\tBad Chassis ID: 09\nSystem Name TLV\n\tleaf1\n"
    found = lldp_neighbour(text, "eth0")
    assert (found.name, found.id, found.port) == ("leaf1", None, None)


def test_the_first_of_two_equal_headings_counts():
    """A name with a line feed looks like a second one."""
    text = lldp_text(name="leaf1\nChassis ID TLV\n\tMAC: 66:66:66:66:66:66")
    found = lldp_neighbour(text, "eth0")
    assert (found.name, found.id) == ("leaf1", "00:1c:73:aa:00:01")


def test_texts_have_a_limit():
    long = "x" * 1_000_000
    found = lldp_neighbour(lldp_text(long, f"Ifname: {long}", f"MAC: {long}"), "eth0")
    assert {len(text) for text in (found.name, found.port, found.id)} == {255}
    assert len(infiniband_neighbour(INFO, f"Node Description:.{long}").name) == 255


WORDS = st.sampled_from([b"\n", b"\t", b": ", b":", b".", b"\0", b"\xff", b"TLV", b"9"])


@given(mutated([INFO.encode(), lldp_text().encode(), OF_VDSM.encode()], WORDS))
def test_odd_text_raises_nothing(data):
    text = data.decode("utf-8", "surrogateescape")
    for found in (infiniband_neighbour(text, text), lldp_neighbour(text, "eth0")):
        if found is not None:
            assert found.id or found.name
            assert all(len(one or "") <= 255 for one in vars(found).values())


# ------------------------------------------------------------------ on a host


def read(host):
    """Return the neighbours of each port by its name; the facts have no problem."""
    facts = host.reader().facts()
    assert facts.problems == ()
    assert model.from_json_dict(model.to_json_dict(facts), "here") == facts
    return {
        f"{device.name}/{port.number}": port.neighbours
        for device in facts.rdma_devices
        for port in device.ports
    }


def asked(host, tool):
    return [argv for argv in host.runner.ran if argv[0] == tool]


def test_an_infiniband_port(tmp_path):
    host = connectx3_ib(tmp_path)
    host.cabled("mlx4_0", 1)
    host.mad_device("mlx4_0", 2)  # it has no link, so it is not asked
    assert read(host) == {"mlx4_0/1": (LEAF,), "mlx4_0/2": ()}
    assert len(asked(host, "smpquery")) == 2


def test_without_ib_umad_nothing_is_asked(tmp_path):
    host = connectx3_ib(tmp_path)
    host.runner.program("smpquery", lambda argv: INFO)
    assert read(host) == {"mlx4_0/1": (), "mlx4_0/2": ()}
    assert asked(host, "smpquery") == []


@pytest.mark.parametrize(
    "failure",
    [
        # What it prints on stdout (ibdiag_common.c, ibexit).
        CommandFailed("exit status 255", 255, "smpquery: iberror: failed: Failed to"),
        CommandTimeout("no answer within 5 s"),
        NotInstalled("No such file or directory"),
    ],
)
def test_a_failure_is_unknown_and_no_problem(tmp_path, failure):
    host = connectx3_ib(tmp_path)
    host.cabled("mlx4_0", 1)
    host.runner.answer("smpquery -t 300 -C mlx4_0 -P 1 -D nodeinfo 0,1", failure)
    assert read(host)["mlx4_0/1"] == ()
    assert len(asked(host, "smpquery")) == 1


def test_a_port_whose_name_is_not_answered_has_its_guid(tmp_path):
    host = connectx3_ib(tmp_path)
    host.cabled("mlx4_0", 1)
    failure = CommandFailed("exit status 255", 255)
    host.runner.answer("smpquery -t 300 -C mlx4_0 -P 1 -D nodedesc 0,1", failure)
    assert read(host)["mlx4_0/1"] == (replace(LEAF, name=None),)


def test_without_the_tools_it_is_unknown(tmp_path):
    host = connectx3_ib(tmp_path / "ib")
    host.mad_device("mlx4_0", 1)
    assert read(host)["mlx4_0/1"] == ()
    host = connectx5_roce(tmp_path / "roce")
    host.lldp("ens1f0np0", "")
    host.runner.answers = {
        argv: one for argv, one in host.runner.answers.items() if argv[0] != "lldptool"
    }
    assert read(host)["mlx5_bond_0/1"] == ()


def test_virtual_functions_ask_nothing(tmp_path):
    host = virtual_functions(tmp_path)
    for device in ("mlx5_0", "mlx5_1"):
        host.cabled(device)
    found = read(host)
    assert (found["mlx5_0/1"], found["mlx5_1/1"]) == ((LEAF,), ())


def test_a_roce_bond_has_two_cables(tmp_path):
    """Bond, VLAN and bridge have none: only the physical netdevs are asked."""
    host = connectx5_roce(tmp_path)
    host.lldp("ens1f0np0", lldp_text("leaf1"))
    # Without a frame lldptool ends well and prints nothing (lldp/ports.c).
    host.lldp("ens1f1np1", "")
    (only,) = read(host)["mlx5_bond_0/1"]
    assert only == replace(TOR, netdev="ens1f0np0")
    host.lldp("ens1f1np1", lldp_text("leaf2", chassis="MAC: 00:1c:73:aa:00:02"))
    host.runner.ran.clear()
    both = read(host)["mlx5_bond_0/1"]
    assert [(one.name, one.netdev) for one in both] == [
        ("leaf1", "ens1f0np0"),
        ("leaf2", "ens1f1np1"),
    ]
    assert [argv[-1] for argv in asked(host, "lldptool")] == ["ens1f0np0", "ens1f1np1"]


def test_soft_roce_on_a_vlan_has_the_cable_of_the_nic_below(tmp_path):
    host = soft_roce(tmp_path)
    host.lldp("eth0", lldp_text())
    assert read(host) == {"rxe0/1": (TOR,)}
    host.netdev("eth0.5", kind="vlan", lowers=("eth0",))
    host.write("/sys/class/infiniband/rxe0/parent", "eth0.5")
    host.lldp("eth0", lldp_text())
    assert read(host) == {"rxe0/1": (TOR,)}


@pytest.mark.parametrize(
    "change",
    [
        lambda host: host.write("/proc/812/comm", "bash"),
        lambda host: run_process(host.path, 812, "lldpad", user=1000),
        lambda host: run_process(host.path, 812, "lldpad", program="/bin/bash"),
        lambda host: host.write("/run/lldpad.pid", "813"),
        lambda host: host.write("/run/lldpad.pid", ""),
        lambda host: host.write("/run/lldpad.pid", "../812"),
    ],
)
def test_lldpad_is_not_started(tmp_path, change):
    """lldptool would start it: systemd listens at its socket."""
    host = soft_roce(tmp_path)
    host.lldp("eth0", lldp_text())
    change(host)
    assert read(host) == {"rxe0/1": ()}
    assert asked(host, "lldptool") == []


def test_mounts_and_interfaces_ask_no_neighbour(tmp_path):
    host = connectx3_ib(tmp_path)
    host.cabled("mlx4_0", 1)
    reader = host.reader()
    for read_some in (
        reader.rdma_devices,
        reader.mount_facts,
        reader.partitions,
        reader.interfaces,
    ):
        read_some()
    assert asked(host, "smpquery") == []
