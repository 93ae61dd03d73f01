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
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.forms import Refused
from ovirt_rdma.host.policy.model import AUTO, PREFER_RDMA, Policy
from ovirt_rdma.host.rules.base import Port, View
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.readiness import MODULE_STEP, READY, Readiness, local_steps

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
    head = _HEAD.format(host=printable(facts.hostname))
    return head + "\n".join([*lines, *_host(facts)]) + "\n"


def _comment(indent: int, text: str) -> list[str]:
    """Return ``text``, perhaps of others, as lines of a comment."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        printable(text),
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
        way = _way(facts, mount)
        left_out = left_out or ("" if way.verdict == READY else way.reason)
        over = f"mounted over {(mount.protocol or 'an unknown protocol').upper()}"
        found = "; ".join(step.detail for step in way.steps)
        why = f"no rule: {left_out}" if left_out else found
        yield from _comment(4, f"{mount.source}: {over}; {why}")
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
        if texts.server(export.server) is None:
            return f"{export.server!r} is no server that a rule can name"
        texts.export_path(export.path)
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    except Refused as refused:
        return str(refused)
    return ""


def _way(facts: Facts, mount: NfsMount) -> Readiness:
    """Return by what the server of ``mount`` is reached, and whether by RDMA."""
    route = next((r for r in facts.routes if r.destination == mount.address), None)
    steps = local_steps(facts, route)
    # The module loads with the first mount.
    return Readiness(tuple(step for step in steps if step.name != MODULE_STEP))


def _host(facts: Facts) -> Iterator[str]:
    ports = [
        one
        for one in View(facts, Policy()).ports
        if one.adapter is None or one.adapter.physical_function is None
    ]
    active = [
        one
        for one in ports
        if one.port.is_infiniband and one.port.is_active and one.port.guid
    ]
    yield "host:" if active else "host: {}"
    if active:
        yield "  # auto is the best that adapter and fabric allow; plan shows it."
        yield "  interfaces:"
    else:
        yield "  # no InfiniBand port is up"
    indent = 4 if active else 2
    for one in ports:
        on = ", ".join(_netdevs(facts, one)) or "no netdev"
        title = f"{one.name} ({one.port.link_layer}, {one.port.state}): {on}"
        if one in active:
            yield from _comment(4, title)
            yield f'    - match: {{guid: "{one.port.guid}"}}'
            yield f"      transport_mode: {AUTO}"
            yield f"      mtu: {AUTO}"
            yield f"      tso: {AUTO}"
        elif one.port.is_infiniband:
            yield from _comment(indent, f"{title}; no rule: it is not up")
        else:
            yield from _comment(indent, f"{title}; no rule: the engine sets its MTU")
    loaded = {line.module for line in facts.modules.load_lines}
    if active and _IB_IPOIB not in loaded:
        yield "  # nothing loads it at boot yet"
        yield f"  modules: [{_IB_IPOIB}]"


def _netdevs(facts: Facts, port: Port) -> Iterator[str]:
    place = (port.device.name, port.port.number)
    for netdev in facts.netdevs:
        if (netdev.rdma_device, netdev.rdma_port) == place:
            mode = netdev.ipoib and netdev.ipoib.mode
            shown = f"{mode} mode, MTU" if mode else "MTU"
            yield f"{netdev.name} has {shown} {netdev.mtu}"


def _quoted(text: str) -> str:
    """Return a text in double quotes; the escapes of printable() are YAML's too."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'
