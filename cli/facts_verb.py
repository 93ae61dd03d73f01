# SPDX-License-Identifier: GPL-2.0-or-later
"""``facts``: what is true of this host."""

from __future__ import annotations

import ipaddress
from argparse import Namespace

from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.host.facts import Facts, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts_file import load, to_json_dict
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.host.reader import HostReader


def show(words: Namespace, screen: Screen) -> int:
    """Print the facts of this host, or of a facts file."""
    if words.facts is not None:
        if words.route_to:
            raise UsageProblem(
                "--route-to asks this host and --facts a file", "leave out one of them"
            )
        facts = load(words.facts)
    else:
        for address in words.route_to:
            _refuse_name(address)
        facts = HostReader(words.root).facts(words.route_to)
    if screen.for_people:
        _print(facts, screen)
    else:
        # The document is the facts file itself, so that --facts takes it back.
        screen.raw_document(to_json_dict(facts))
    return 0


def _refuse_name(address: str) -> None:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise UsageProblem(
            f"--route-to {address!r} is not an IP address",
            "give the address, as in --route-to 10.20.0.1",
        ) from None


def _print(facts: Facts, screen: Screen) -> None:
    screen.fields(
        (
            ("host", facts.hostname),
            ("kernel", facts.kernel_release),
            ("up for", _uptime(facts.uptime_s)),
            ("modules", ", ".join(facts.modules.loaded) or "none loaded"),
        )
    )
    _section(
        screen,
        "RDMA ports",
        ("DEVICE", "PORT", "STATE", "LINK LAYER", "RATE", "NETDEVS", "DRIVER"),
        [
            (
                device.name,
                str(port.number),
                port.state,
                port.link_layer,
                _rate(port),
                _netdevs(port),
                _driver(device),
            )
            for device in facts.rdma_devices
            for port in device.ports
        ],
    )
    _section(
        screen,
        "netdevs",
        ("NETDEV", "STATE", "MTU", "DRIVER", "BELOW IT", "ADDRESSES"),
        [
            (
                dev.name,
                dev.operstate,
                str(dev.mtu),
                dev.driver or "-",
                ", ".join(dev.lowers) or "-",
                ", ".join(dev.addresses) or "-",
            )
            for dev in facts.netdevs
        ],
    )
    _section(
        screen,
        "routes",
        ("TO", "NETDEV", "FROM", "GATEWAY"),
        [
            (
                r.destination,
                r.netdev or r.problem or "-",
                r.source or "-",
                r.gateway or "-",
            )
            for r in facts.routes
        ],
    )
    _section(
        screen,
        "NFS mounts",
        ("EXPORT", "MOUNTED AT", "NFS", "PROTOCOL", "TRANSPORTS"),
        [
            (
                m.source,
                m.mountpoint,
                m.version or "-",
                m.protocol or "-",
                " ".join(t.protocol for t in m.transports) or "-",
            )
            for m in facts.nfs_mounts
        ],
    )
    if facts.problems:
        screen.line()
        screen.line("could not be read")
        for sentence in facts.problems:
            screen.line(f"  {sentence}")


def _section(
    screen: Screen, title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]]
) -> None:
    screen.line()
    screen.line(title if rows else f"{title}: none")
    if rows:
        screen.table(headings, rows)


def _uptime(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{count(days, 'day')} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _rate(port: RdmaPort) -> str:
    return f"{port.rate_mbps / 1000:g} Gb/s" if port.rate_mbps else "-"


def _netdevs(port: RdmaPort) -> str:
    names = dict.fromkeys(gid.netdev for gid in port.gids if gid.netdev)
    return ", ".join(names) or "-"


def _driver(device: RdmaDevice) -> str:
    return (
        " ".join(
            part for part in (device.driver, device.pci and device.pci.address) if part
        )
        or "-"
    )
