# SPDX-License-Identifier: GPL-2.0-or-later
"""The picture shows what hosts report, and its parts do not lie on each other."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from ovirt_rdma.engine_sdk_tools.model import FAIL, OK, UNKNOWN, Matrix
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    Device,
    Port,
    Report,
    ReportDomain,
    ReportHost,
    ServerPath,
    rate_text,
)
from ovirt_rdma.engine_sdk_tools.report.page import MOST_SWITCHES, picture_of
from ovirt_rdma.host.facts.devices import Neighbour

pytestmark = pytest.mark.engine

IB0 = Attached("ib0", "storage", ("10.0.0.0/24",))
PORT = Port(1, "ACTIVE", "InfiniBand", 100_000, (IB0,))
DEVICE = Device("mlx5_0", "ConnectX-5", "mlx5_core", "16.1", (PORT,))
MANAGEMENT = Attached("ovirtmgmt", "ovirtmgmt", ("192.0.2.0/24",))
SERVER = "nfs1.example.com"
PATH = ServerPath(SERVER, "ib0", IB0, (("rdma", 2),))


def host(name="hv1", **more):
    made = ReportHost(name, name, name, "dc1", "cl1", "up", OK, devices=(DEVICE,))
    return replace(made, **{"paths": (PATH,), **more})


def domain(name, server=SERVER, used=(("rdma", 1),)):
    export = f"{server}:/{name}"
    return ReportDomain(name, name, "dc1", "active", server, export, None, "tcp", used)


def picture(*hosts, domains=None):
    none = Matrix("hosts", (), (), ())
    domains = (domain("data1"), domain("data2")) if domains is None else domains
    return picture_of(Report("", "", "", None, hosts, tuple(domains), none, none))


def boxes(shown, style):
    return [box for box in shown.boxes if box.style.split()[0] == style]


def tiles(box):
    return [text for text in box.texts if text.style.startswith("tile")]


def texts(box):
    return [text.text.strip() for text in box.texts if text not in tiles(box)]


def joined(shown, style):
    """Return what lines of this style say that they lead from and to."""
    return [line.title for line in lines(shown, style)]


def lines(shown, style):
    return [line for line in shown.lines if line.style == style]


def test_one_host_from_port_to_domain():
    shown = picture(host())
    (box,) = boxes(shown, "hosts")
    assert texts(box) == [
        "✓ hv1",
        "mlx5_0, ConnectX-5 (mlx5_core)",
        "● port 1 ACTIVE, InfiniBand 100 Gb/s, ib0",
        "storage: 2 rdma",
    ]
    (network,) = boxes(shown, "network")
    assert texts(network) == [
        "storage",
        "InfiniBand",
        "1 host",
    ]
    (server,) = boxes(shown, "server")
    assert texts(server) == [SERVER, "data1: 1 rdma", "data2: 1 rdma"]
    assert joined(shown, "cable") == ["✓ hv1 to storage: 1 port"]
    assert joined(shown, "rdma") == [f"storage to {SERVER}: 2 mounts over rdma"]


# ------------------------------------------------------------------ switches


LEAF = Neighbour("switch", "ec0d:9a03:00f5:0001", "leaf1", "7", None, None)
BACK = replace(LEAF, kind="host", id="ec0d:9a03:007d:7d1a", name="hv2 mlx5_0")


def leaf(number, **more):
    its = {"id": f"ec0d:9a03:00f5:{number:04x}", "name": f"leaf{number}", **more}
    return replace(LEAF, **its)


def cabled(name, *neighbours, **more):
    """Return a host whose port is cabled to ``neighbours``."""
    port = replace(PORT, neighbours=neighbours, **more)
    return host(name, devices=(replace(DEVICE, ports=(port,)),), paths=())


def switches(shown):
    return [texts(box) for box in boxes(shown, "switch")]


def test_a_port_leads_to_its_switch_and_that_to_the_network():
    shown = picture(cabled("hv1", LEAF))
    assert switches(shown) == [["leaf1", "1 port of 1 host"]]
    assert joined(shown, "cable") == [
        "✓ hv1 to leaf1: 1 port",
        "leaf1 to storage: 1 port",
    ]
    assert [text.text for text in shown.headings] == [
        "Hosts, RDMA devices and ports",
        "Switches",
        "Networks",
        "NFS servers and domains",
    ]


def test_equal_hosts_on_many_switches_stay_one_box():
    many = [cabled(f"hv{n}", leaf(n // 21, port=str(n % 21))) for n in range(252)]
    shown = picture(*many)
    (box,) = boxes(shown, "hosts")
    assert len(tiles(box)) == 252
    # In the order of their names.
    assert switches(shown) == [[f"leaf{n}", "21 ports of 21 hosts"] for n in range(12)]
    cables = joined(shown, "cable")
    assert len(cables) == 24
    assert all(title.endswith(": 21 ports") for title in cables)


def test_switches_are_in_the_order_of_their_hosts():
    """Whatever their names, so that lines do not cross."""
    shown = picture(*(cabled(f"hv{n}", leaf(9 - n)) for n in range(9)))
    assert [name for name, _ in switches(shown)] == [f"leaf{9 - n}" for n in range(9)]


def test_the_switches_with_the_fewest_ports_are_one_box():
    many = [cabled(f"hv{n}", leaf(n % 20)) for n in range(40)]
    many += [cabled(f"more{n}", leaf(19)) for n in range(3)]
    found = switches(picture(*many))
    assert len(found) == MOST_SWITCHES + 1
    assert ["leaf19", "5 ports of 5 hosts"] in found
    assert ["other switches", "8 ports of 8 hosts"] in found


def test_a_switch_is_known_by_its_id_and_named_by_any_host():
    shown = picture(
        cabled("hv1", replace(LEAF, name=None)),
        cabled("hv2", LEAF),
        cabled("hv3", leaf(2, name="leaf1")),
        cabled("hv4", leaf(3, name=None)),
        cabled("hv5", replace(LEAF, id=None, name="leaf9")),
    )
    assert sorted(switches(shown)) == [
        ["ec0d:9a03:00f5:0003", "1 port of 1 host"],
        ["leaf1", "1 port of 1 host"],
        ["leaf1", "2 ports of 2 hosts"],
        ["leaf9", "1 port of 1 host"],
    ]


def test_a_bond_has_a_cable_to_each_of_its_switches():
    shown = picture(cabled("hv1", LEAF, leaf(2)))
    assert [ports for _, ports in switches(shown)] == ["1 port of 1 host"] * 2
    assert len(lines(shown, "cable")) == 4


def test_lines_without_a_known_switch_pass_behind_none():
    """A port whose switch is unknown, one without a network (SRP needs no IP address),
    and a NIC without RDMA.
    """
    way = replace(PATH, netdev="eno1", attached=MANAGEMENT)
    shown = picture(
        cabled("hv1", LEAF),
        cabled("hv2"),
        cabled("hv3", attached=()),
        replace(cabled("hv4", state="DOWN"), paths=(way,)),
    )
    assert switches(shown) == [
        ["leaf1", "1 port of 1 host"],
        ["no switch known", "3 ports of 3 hosts"],
    ]
    assert joined(shown, "cable") == [
        "✓ hv1 to leaf1: 1 port",
        "leaf1 to storage: 1 port",
        "✓ hv2 to no switch known: 1 port",
        "no switch known to storage: 1 port",
        "✓ hv3 to no switch known: 1 port",
        "✓ hv4 to no switch known: 1 port",
        "no switch known to ovirtmgmt: 1 port",
    ]


def test_hosts_that_are_cabled_back_to_back_have_no_switch():
    shown = picture(cabled("hv1", BACK))
    assert (boxes(shown, "switch"), shown.switches) == ([], False)
    assert joined(shown, "cable") == ["✓ hv1 to storage: 1 port"]


def test_a_port_that_is_down_has_no_cable():
    shown = picture(cabled("hv1", LEAF, state="DOWN"))
    assert (boxes(shown, "switch"), lines(shown, "cable")) == ([], [])


def _ends(line):
    numbers = list(map(int, re.findall(r"\d+", line.path)))
    return numbers[:2], numbers[-2:]


def test_lines_lead_from_box_to_box():
    shown = picture(*(host(f"hv{n}") for n in range(5)))
    (network,) = boxes(shown, "network")
    (server,) = boxes(shown, "server")
    for box in boxes(shown, "hosts"):
        start = [box.x + box.width, box.y + box.height // 2]
        end = [network.x, network.y + network.height // 2]
        assert (start, end) in map(_ends, lines(shown, "cable"))
    (x, y), (to_x, to_y) = _ends(lines(shown, "rdma")[0])
    assert (x, to_x) == (network.x + network.width, server.x)
    assert network.y < y < network.y + network.height
    assert server.y < to_y < server.y + server.height


def test_a_port_that_is_down_leads_nowhere():
    down = replace(DEVICE, ports=(replace(PORT, state="DOWN"),))
    path = replace(
        PATH, netdev="ovirtmgmt", attached=MANAGEMENT, transports=(("tcp", 2),)
    )
    shown = picture(host(devices=(down,), paths=(path,), worst=FAIL))
    (box,) = boxes(shown, "hosts")
    assert box.style == "hosts fail"
    assert "✕ port 1 DOWN, InfiniBand 100 Gb/s, ib0" in texts(box)
    assert texts(boxes(shown, "network")[0])[:2] == ["ovirtmgmt", "no RDMA port"]
    assert len(lines(shown, "cable")) == 1
    assert (len(lines(shown, "rdma")), len(lines(shown, "tcp"))) == (0, 1)


def test_each_transport_has_its_line():
    mixed = replace(PATH, transports=(("rdma", 1), ("tcp", 2), ("not mounted", 3)))
    shown = picture(host(paths=(mixed,)))
    assert [len(lines(shown, one)) for one in ("rdma", "tcp", "unknown")] == [1, 1, 1]
    assert len({line.path for line in shown.lines}) == 4
    assert "3 mounts" in lines(shown, "unknown")[0].title


def test_hosts_that_say_nothing_and_hosts_without_devices_differ():
    shown = picture(
        host("hv1", devices=None, paths=None, worst=UNKNOWN),
        host("hv2", devices=(), paths=(), worst=FAIL),
    )
    silent, bare = boxes(shown, "hosts")
    assert texts(silent) == ["? hv1", "no report from the host"]
    assert texts(bare) == ["✕ hv2", "no RDMA device"]
    assert boxes(shown, "network") == []


def test_networks_without_a_name_are_their_subnets():
    unnamed = replace(IB0, network=None)
    device = replace(DEVICE, ports=(replace(PORT, attached=(unnamed,)),))
    path = replace(PATH, attached=unnamed)
    shown = picture(host(devices=(device,), paths=(path,)))
    assert texts(boxes(shown, "network")[0])[0] == "10.0.0.0/24"


def test_many_hosts_are_one_box_with_a_sign_for_each():
    hosts = [host(f"hv{n}") for n in range(1, 61)]
    hosts[4] = replace(hosts[4], worst=FAIL)
    shown = picture(*hosts)
    (box,) = boxes(shown, "hosts")
    assert texts(box)[0] == "60 hosts: hv1 to hv60"
    found = tiles(box)
    assert found[4].title == "hv5"
    assert [tile.text for tile in found][3:6] == ["✓", "✕", "✓"]
    assert len({(tile.x, tile.y) for tile in found}) == 60
    for tile in found:
        assert box.x <= tile.x < box.x + box.width
        assert box.y < tile.y < box.y + box.height


LONG = "x" * 300


@pytest.mark.parametrize("number", [1, 3, 50, 250])
@pytest.mark.parametrize("word", ["hv", LONG], ids=["short", "long"])
@pytest.mark.parametrize("switches", [False, True])
def test_nothing_lies_on_something_else(number, word, switches):
    """Hosts differ in many ways, and there are many networks, servers and domains."""
    hosts = []
    for n in range(number):
        attached = replace(IB0, network=f"{word}{n % 9}")
        ends = (leaf(n % 23, name=f"{word}{n % 23}"),)
        if n % 4 == 0:
            ends += (replace(BACK, name=word),)
        ports = tuple(
            replace(
                PORT,
                number=p,
                attached=(attached,),
                neighbours=ends[: (n + p) % 3] if switches else (),
            )
            for p in range(n % 5)
        )
        devices = tuple(
            replace(DEVICE, name=f"{word}_{d}", ports=ports) for d in range(2)
        )
        path = replace(PATH, server=f"{word}{n % 7}", attached=attached)
        cluster = f"{word}{n % 4}"
        hosts.append(
            host(f"{word}{n}", cluster=cluster, devices=devices, paths=(path,))
        )
    domains = [domain(f"{word}{n}", f"{word}{n % 7}") for n in range(60)]
    shown = picture(*hosts, domains=domains)
    for one, other in combinations(shown.boxes, 2):
        apart = (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )
        assert apart, (one.title, other.title)
    for box in shown.boxes:
        assert box.x >= 0
        assert box.x + box.width <= shown.width
        assert box.y + box.height <= shown.height
        for text in box.texts:
            assert box.y < text.y < box.y + box.height
            # A character has 7 units, a bold one 8.
            per_character = 8 if text.style == "name" else 7
            assert text.x + len(text.text) * per_character <= box.x + box.width
    # Readable: not higher than three screens.
    assert shown.height < 6000


@pytest.mark.parametrize(
    ("mbps", "text"),
    [(None, ""), (0, ""), (2500, "2.5 Gb/s"), (100_000, "100 Gb/s"), (100, "100 Mb/s")],
)
def test_rates(mbps, text):
    assert rate_text(mbps) == text


def test_a_port_without_netdev_says_so():
    port = replace(PORT, attached=(), rate_mbps=None)
    assert str(port) == "port 1 ACTIVE, InfiniBand, no IP address"
