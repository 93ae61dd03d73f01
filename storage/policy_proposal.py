# SPDX-License-Identifier: GPL-2.0-or-later
"""Propose a policy for a host, from what is mounted and plugged in now. Pure.

It names only what RDMA can serve: exports that are reached by an RDMA port, and
InfiniBand ports that are up. Each line has its reason, and what is left out is named
too.
"""

from __future__ import annotations

import posixpath
import textwrap
from collections.abc import Iterator

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.devices import Netdev, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.forms import Refused
from ovirt_rdma.host.policy.model import AUTO, PREFER_RDMA
from ovirt_rdma.storage.readiness import ports_behind

_HEAD = """\
# Proposed by policy init for {host}. It changes nothing by itself. Read each line;
# then policy check finds mistakes, plan --policy shows what apply would change, and
# after policy load VDSM mounts by it from its next connect on. ovirt-rdma-policy(5)
# has every key.
version: 1
"""
_NO_MOUNT = "no export is mounted; a rule needs server, path and transport"
_TRANSPORT = (
    "prefer-rdma falls back to TCP, loudly; require-rdma is for servers that "
    "'ovirt-rdma-host nfs check' finds ready"
)
_IB_IPOIB = "ib_ipoib"


def proposed(facts: Facts) -> str:
    """Return the text of a policy for the host of ``facts``; it is valid."""
    lines = ["nfs:", "  rules:"]
    rules = list(_rules(facts))
    if not any(line.startswith("    - ") for line in rules):
        lines = ["nfs: {}"]
    lines += rules or _comment(2, _NO_MOUNT)
    head = _HEAD.format(host=_shown(facts.hostname))
    return head + "\n".join([*lines, *_host(facts)]) + "\n"


def _comment(indent: int, text: str) -> list[str]:
    """Return ``text``, perhaps of others, as lines of a comment."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        _shown(text),
        80,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rules(facts: Facts) -> Iterator[str]:
    names: set[str] = set()
    seen: set[object] = set()
    for mount in facts.nfs_mounts:
        export = Export.maybe(mount.source)
        # In another notation it is the same export.
        key = export.key if export else mount.source
        if key in seen:
            continue
        seen.add(key)
        left_out = "this is no export" if export is None else _left_out(export)
        way, by_rdma = _way(facts, mount)
        over = f"mounted over {(mount.protocol or 'an unknown protocol').upper()}"
        left_out = left_out or ("" if by_rdma else "VDSM mounts it as stock")
        no_rule = f"; no rule: {left_out}" if left_out else ""
        yield from _comment(4, f"{mount.source}: {over}; {way}{no_rule}")
        if export is None or left_out:
            continue
        if not names:
            yield from _comment(4, _TRANSPORT)
        base = posixpath.basename(export.path) or "root"
        name = first = f"{export.server}-{base}"
        while name in names:
            name = f"{first}-{len(names) + 1}"
        names.add(name)
        yield f"    - name: {_quoted(name)}"
        yield f"      server: {_quoted(export.server)}"
        yield f"      path: {_quoted(export.path)}"
        yield f"      transport: {PREFER_RDMA}"


def _left_out(export: Export) -> str:
    """Return why no rule can name ``export``, or ""."""
    try:
        str(export).encode()
        texts.server(export.server)
        texts.export_path(export.path)
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except Refused as refused:
        return str(refused)
    return ""


def _way(facts: Facts, mount: NfsMount) -> tuple[str, bool]:
    """Return by what the server is reached, and whether that is an RDMA port."""
    address = mount.address
    route = next((one for one in facts.routes if one.destination == address), None)
    if address is None or route is None or route.netdev is None:
        return "how its server is reached is unknown", False
    ports = ports_behind(
        facts.rdma_devices, facts.netdevs, route.netdev, route.source or ""
    )
    way = f"{address} is reached by {route.netdev}"
    if not ports:
        return f"{way}, which is on no RDMA port", False
    device, port = ports[0]
    return f"{way}, on {device.name}/{port.number} ({port.state})", True


def _host(facts: Facts) -> Iterator[str]:
    functions = {a.pci.address for a in facts.adapters if a.physical_function}
    ports = [
        (device, port)
        for device in facts.rdma_devices
        if device.pci is None or device.pci.address not in functions
        for port in device.ports
    ]
    infiniband = [(d, p) for d, p in ports if p.is_infiniband and p.guid]
    active = [(d, p) for d, p in infiniband if p.is_active]
    yield "host:" if active else "host: {}"
    if active:
        yield "  # auto is the best that adapter and fabric allow; plan shows it."
        yield "  interfaces:"
    else:
        yield "  # no InfiniBand port is up"
    indent = 4 if active else 2
    for device, port in ports:
        on = ", ".join(map(_netdev, _netdevs(facts, device, port))) or "no netdev"
        title = f"{device.name}/{port.number} ({port.link_layer}, {port.state}): {on}"
        if (device, port) in active:
            yield from _comment(4, title)
            yield f'    - match: {{guid: "{port.guid}"}}'
            yield f"      transport_mode: {AUTO}"
            yield f"      mtu: {AUTO}"
            yield f"      tso: {AUTO}"
        elif port.is_infiniband:
            yield from _comment(indent, f"{title}; no rule: it is not up")
        else:
            yield from _comment(indent, f"{title}; no rule: the engine sets its MTU")
    loaded = {line.module for line in facts.modules.load_lines}
    if active and _IB_IPOIB not in loaded:
        yield "  # nothing loads it at boot yet"
        yield f"  modules: [{_IB_IPOIB}]"


def _netdevs(facts: Facts, device: RdmaDevice, port: RdmaPort) -> list[Netdev]:
    place = (device.name, port.number)
    return [n for n in facts.netdevs if (n.rdma_device, n.rdma_port) == place]


def _netdev(netdev: Netdev) -> str:
    mode = f"{netdev.ipoib.mode} mode, " if netdev.ipoib and netdev.ipoib.mode else ""
    return f"{netdev.name} has {mode}MTU {netdev.mtu}"


def _shown(text: str) -> str:
    """Return a text of others in ASCII, as in double quotes in YAML."""
    return "".join(
        c if c.isascii() and c.isprintable() else f"\\U{ord(c):08x}" for c in text
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_shown(escaped)}"'
