# SPDX-License-Identifier: GPL-2.0-or-later
"""The picture shows what hosts report, and its parts do not lie on each other."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from ovirt_rdma.engine_sdk_tools.matrix import FAIL, OK, UNKNOWN, Matrix
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    Device,
    Port,
    Report,
    ReportDomain,
    ReportHost,
    ServerPath,
)
from ovirt_rdma.engine_sdk_tools.report.picture import picture_of
from ovirt_rdma.engine_sdk_tools.report.words import port_text, rate_text

pytestmark = pytest.mark.engine

IB0 = Attached("ib0", "storage", ("10.0.0.0/24",))
PORT = Port(1, "ACTIVE", "InfiniBand", 100_000, 7, (IB0,))
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


def texts(box):
    return [text.text.strip() for text in box.texts]


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
        "InfiniBand 100 Gb/s",
        "subnet manager: LID 7",
        "1 host",
    ]
    (server,) = boxes(shown, "server")
    assert texts(server) == [SERVER, "data1: 1 rdma", "data2: 1 rdma"]
    (cable,), (way,) = lines(shown, "cable"), lines(shown, "rdma")
    assert "port 1" in cable.title
    assert way.title == f"{SERVER} over rdma: 2 mounts"


def test_the_name_of_a_group_has_as_many_hosts_as_fit():
    many = [host(f"host-of-rack{n}", status="up") for n in (1, 3, 5, *range(7, 30, 2))]
    title = texts(boxes(picture(*many), "hosts")[0])[0]
    assert title == "15 hosts: host-of-rack1, host-of-rack3 and 13 more"


def _ends(line):
    numbers = list(map(int, re.findall(r"\d+", line.path)))
    return numbers[:2], numbers[-2:]


def test_lines_lead_from_box_to_box():
    shown = picture(*(host(f"hv{n}") for n in range(5)))
    (network,) = boxes(shown, "network")
    (server,) = boxes(shown, "server")
    for line, box in zip(lines(shown, "cable"), boxes(shown, "hosts")):
        (x, y), (to_x, to_y) = _ends(line)
        assert x == box.x + box.width
        assert box.y < y < box.y + box.height
        assert (to_x, network.y < to_y < network.y + network.height) == (
            network.x,
            True,
        )
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
    assert f"○ ovirtmgmt leads to {SERVER}" in texts(box)
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
    assert [tile.title for tile in box.tiles][4] == "hv5"
    assert [tile.sign for tile in box.tiles][3:6] == ["✓", "✕", "✓"]
    assert len({(tile.x, tile.y) for tile in box.tiles}) == 60
    for tile in box.tiles:
        assert box.x <= tile.x < box.x + box.width
        assert box.y < tile.y < box.y + box.height
    assert "60 hosts in 1 group of equal hosts" in shown.description


LONG = "x" * 300


@pytest.mark.parametrize("number", [1, 3, 50, 250])
@pytest.mark.parametrize("word", ["hv", LONG], ids=["short", "long"])
def test_nothing_lies_on_something_else(number, word):
    """Hosts differ in many ways, and there are many networks, servers and domains."""
    hosts = []
    for n in range(number):
        attached = replace(IB0, network=f"{word}{n % 9}")
        ports = tuple(
            replace(PORT, number=p, attached=(attached,)) for p in range(n % 5)
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
    assert port_text(replace(PORT, attached=(), rate_mbps=None)) == (
        "port 1 ACTIVE, InfiniBand, no IP address"
    )
