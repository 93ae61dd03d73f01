# SPDX-License-Identifier: GPL-2.0-or-later
"""Which netdevs carry an address, or what goes to one, as far as facts tell. Pure."""

from __future__ import annotations

import ipaddress
from typing import Optional

from ovirt_rdma.host.facts import ARPHRD_LOOPBACK, Facts
from ovirt_rdma.host.socket_table import plain_address


class NetdevPaths:
    """Answers by netdev names, without ``lo``, which has no link to lose."""

    def __init__(self, facts: Facts) -> None:
        self._netdevs = [n for n in facts.netdevs if n.type != ARPHRD_LOOPBACK]
        self.names = {netdev.name for netdev in self._netdevs}
        self._by_address: dict[str, list[str]] = {}
        for netdev in self._netdevs:
            for text in netdev.addresses:
                address = plain_address(text.partition("/")[0])
                self._by_address.setdefault(address, []).append(netdev.name)
        self._routes = {_same(route.destination): route for route in facts.routes}
        # The ends on this host of RDMA connections, by the other end.
        self._ends: dict[str, set[str]] = {}
        for cm_id in facts.cm_ids or ():
            if cm_id.source and cm_id.destination:
                remote = _address_of(cm_id.destination)
                self._ends.setdefault(remote, set()).add(_address_of(cm_id.source))

    def carrying(self, address: str) -> list[str]:
        """Return the netdevs that have ``address`` (``fe80::1%eth0``: ``eth0``)."""
        scope = address.partition("%")[2]
        if scope in self.names:
            return [scope]
        return self._by_address.get(plain_address(address), [])

    def towards(self, remote: str) -> Optional[list[str]]:
        """Return the netdevs by which ``remote`` is reached, None if not to be told.

        An RDMA connection to it tells its own end. Without one the route decides,
        and where no route was asked for, the networks that ``remote`` lies in.
        """
        scope = remote.partition("%")[2]
        if scope in self.names:
            return [scope]
        ends = () if scope else sorted(self._ends.get(plain_address(remote), ()))
        connected = [name for end in ends for name in self.carrying(end)]
        if connected:
            return list(dict.fromkeys(connected))
        route = self._routes.get(_same(remote))
        if route:
            return [route.netdev] if route.netdev in self.names else []
        return self._on_link(plain_address(remote)) or None

    def _on_link(self, remote: str) -> list[str]:
        """Return the netdevs with the smallest network that ``remote`` lies in."""
        try:
            address = ipaddress.ip_address(remote)
        except ValueError:
            return []
        if address.is_link_local:
            return []  # in the network of each netdev
        best: dict[str, None] = {}
        longest = 0
        for netdev in self._netdevs:
            for text in netdev.addresses:
                try:
                    network = ipaddress.ip_interface(text).network
                except ValueError:
                    continue
                if address not in network or network.prefixlen < longest:
                    continue
                if network.prefixlen > longest:
                    best, longest = {}, network.prefixlen
                best[netdev.name] = None
        return list(best)


def _same(address: str) -> str:
    """Return an address in one form, with its scope: ``fe80::1%3``."""
    plain, percent, scope = address.partition("%")
    return f"{plain_address(plain)}{percent}{scope}"


def _address_of(end: str) -> str:
    """Return the address of ``10.0.0.1:20049`` or ``[fd00::1]:20049``."""
    return plain_address(end.rpartition(":")[0].strip("[]"))
