# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import shutil

import pytest
from support.fakes.fake_hosts import connectx3_ib, connectx5_roce
from support.fakes.fake_root import Pci

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.devices import PciIdentity
from ovirt_rdma.host.facts.model import UNKNOWN, Route
from ovirt_rdma.host.system.commands import CommandFailed

pytestmark = pytest.mark.hypervisor


def netdevs(host, problems=None):
    return {netdev.name: netdev for netdev in host.reader().netdevs(problems)}


def test_uppers_and_lowers_from_port_to_bridge(tmp_path, problems):
    found = netdevs(connectx5_roce(tmp_path), problems)
    assert found["ens1f0np0"].uppers == ("bond0",)
    assert found["bond0"].lowers == ("ens1f0np0", "ens1f1np1")
    assert found["bond0"].uppers == ("bond0.100",)
    assert found["bond0.100"].uppers == ("storage",)
    assert found["storage"].lowers == ("bond0.100",)
    assert found["storage"].addresses == ("10.0.0.2/24", "fd00::2/64")
    assert found["storage"].mtu == 9000
    drivers = {name: found[name].driver for name in found}
    assert drivers == {
        "ens1f0np0": "mlx5_core",
        "ens1f1np1": "mlx5_core",
        "bond0": "bond",
        "bond0.100": "vlan",
        "storage": "bridge",
        "lo": None,
    }
    assert not problems  # bonding_masters is not a netdev


def test_ipoib(tmp_path):
    found = netdevs(connectx3_ib(tmp_path))
    ib0 = found["ib0"]
    assert (ib0.type, ib0.mtu, ib0.operstate) == (32, 2044, "up")
    assert ib0.address.startswith("80:00:02:08:fe:80")
    assert ib0.address.endswith("00:02:c9:03:00:fb:12:31")
    assert ib0.pci == PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")


def test_virtio_has_the_pci_function_above_it_usb_has_none(host):
    for name, child in (("eth0", "virtio2"), ("usb0", "usb1/1-1:1.0")):
        address = "0000:00:03.0"
        pci = Pci(address, "0x1af4", "0x1041", f"{name}_driver", "0x01", child)
        host.netdev(name, pci=pci)
    found = netdevs(host)
    assert found["eth0"].pci == PciIdentity("0000:00:03.0", "0x1af4", "0x1041", "0x01")
    assert found["usb0"].pci is None
    assert found["usb0"].driver == "usb0_driver"


def test_a_netdev_without_a_readable_mtu_is_left_out(host, problems):
    host.netdev("eth0")
    host.write("/sys/class/net/eth0/mtu", "big")
    assert list(netdevs(host, problems)) == ["lo"]
    assert problems == ["/sys/class/net/eth0/mtu reads 'big', not a number"]


def test_an_unreadable_operstate_is_unknown(host, problems):
    host.netdev("eth0")
    host.unreadable("/sys/class/net/eth0/operstate")
    assert netdevs(host, problems)["eth0"].operstate == UNKNOWN
    assert problems == ["/sys/class/net/eth0/operstate cannot be read: Is a directory"]


def test_a_netdev_that_is_a_dangling_link_hides_no_other(host):
    host.netdev("eth0")
    shutil.rmtree((host.path / "sys/class/net/eth0").resolve())
    assert list(netdevs(host)) == ["lo"]


@pytest.mark.parametrize(
    "output, problem",
    [
        ("{", "printed no JSON array: "),
        ("{}", "printed no JSON array: not an array"),
        ("[" * 100_000, "printed no JSON array: nested too deeply"),
        (CommandFailed("no answer within 5 s"), "failed: no answer within 5 s"),
    ],
)
def test_without_ip_the_rest_is_still_read(host, output, problem, problems):
    host.netdev("eth0", addresses=["10.0.0.2/24"])
    host.runner.answer("ip -j -d addr show", output)
    assert netdevs(host, problems)["eth0"].addresses == ()
    assert problems[0].startswith(f"ip -j -d addr show {problem}")


@pytest.mark.parametrize(
    "output",
    [
        "",
        "[]",
        "[{},1,null]",
        '[{"ifname":1}]',
        '[{"ifname":"eth0","addr_info":7,"linkinfo":[]}]',
        '[{"ifname":"eth0","addr_info":[null,{},{"local":3,"prefixlen":1}]}]',
    ],
)
def test_odd_output_of_ip_is_no_address(host, output, problems):
    host.netdev("eth0")
    host.runner.answer("ip -j -d addr show", output)
    assert netdevs(host, problems)["eth0"].addresses == ()
    assert not problems


@pytest.mark.parametrize(
    "row, route",
    [
        (
            '{"dst":"10.0.0.1","dev":"eth0","prefsrc":"10.0.0.2","flags":[],"uid":0}',
            Route("10.0.0.1", "eth0", "10.0.0.2"),
        ),
        (
            '{"dev":"eth0","prefsrc":"10.0.0.2","gateway":"10.0.0.254"}',
            Route("10.0.0.1", "eth0", "10.0.0.2", "10.0.0.254"),
        ),
        (
            '{"type":"local","dst":"127.0.0.1","dev":"lo","prefsrc":"127.0.0.1"}',
            Route("10.0.0.1", "lo", "127.0.0.1"),
        ),
        (
            '{"dev":"eth0","prefsrc":"10.0.0.2","via":{"family":"inet6","host":"fe80::9"}}',
            Route("10.0.0.1", "eth0", "10.0.0.2", "fe80::9"),
        ),
        ('{"dev":"eth0","prefsrc":"10.0.0.2/24"}', Route("10.0.0.1", "eth0")),
        (
            '{"type":"unreachable","dst":"2001:db8::1","dev":"lo"}',
            Route("10.0.0.1", problem="unreachable route"),
        ),
    ],
)
def test_forms_of_a_route(host, row, route):
    host.no_route("198.51.100.1", "No route to host")
    none = Route("198.51.100.1", problem="No route to host")
    assert host.reader().route("198.51.100.1") == none
    host.runner.answer("ip -j route get 10.0.0.1", f"[{row}]")
    assert host.reader().route("10.0.0.1") == route


@pytest.mark.parametrize(
    "address, argv",
    [
        ("fe80::1%4", "ip -j route get fe80::1 oif if4"),
        ("fe80::1%eth0", "ip -j route get fe80::1 oif eth0"),
    ],
)
def test_a_link_local_server_is_asked_for_on_its_netdev(host, address, argv):
    host.runner.answer(argv, '[{"dev":"eth0","prefsrc":"fe80::2"}]')
    assert host.reader().route(address) == Route(address, "eth0", "fe80::2")


def test_a_route_that_cannot_be_told_is_not_a_missing_route(host, problems):
    for output in ("[]", CommandFailed("No such file or directory")):
        host.runner.answer("ip -j route get 10.0.0.1", output)
        assert host.reader().route("10.0.0.1", problems) is None
    assert problems == [
        "ip -j route get 10.0.0.1 shows no route",
        "ip -j route get 10.0.0.1 failed: No such file or directory",
    ]


@pytest.mark.parametrize("name", ["nas.example.com", "", "-6", "10.0.0.1/24", "%eth0"])
def test_only_addresses_are_asked_for(host, name, problems):
    assert host.reader().route(name, problems) is None
    assert problems == [f"the route to {name!r} is unknown: not an IP address"]
    assert not host.runner.ran


def test_below_another_root_nothing_is_run(host, problems):
    host.netdev("eth0", addresses=["10.0.0.2/24"])
    reader = HostReader(host.path)
    assert {n.name: n.addresses for n in reader.netdevs(problems)} == {
        "eth0": (),
        "lo": (),
    }
    assert reader.route("10.0.0.1", problems) is None
    root = f"{host.path} is not this host's root"
    assert problems == [
        f"ip -j -d addr show was not run: {root}",
        f"ip -j route get 10.0.0.1 was not run: {root}",
    ]
