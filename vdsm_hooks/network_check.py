# SPDX-License-Identifier: GPL-2.0-or-later
"""before_network_setup: refuse what InfiniBand cannot do, set the mode that a network
asks for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ovirt_rdma.host import network_refusal
from ovirt_rdma.host.network_links import read_links
from ovirt_rdma.host.network_refusal import without_auto
from ovirt_rdma.host.network_request import Link, NetworkRequest
from ovirt_rdma.vdsm_hooks.bounded import STOP, Answer
from ovirt_rdma.vdsm_hooks.hook_json import network_request
from ovirt_rdma.vdsm_hooks.log_line import say

POINT = "before_network_setup"


def work(root: str) -> Answer:
    """Return GO_ON, or STOP with a sentence for the engine's event log. A request that
    is a rollback, or that cannot be read, goes on.
    """
    request = network_request()
    if request is None:
        say(POINT, "VDSM's request cannot be read: it goes on unchecked")
        return Answer()
    if request.rollback:
        return Answer()
    links = read_links(root, request.netdevs)
    if not network_refusal.concerns_ipoib(links):
        return Answer()
    refused = _refusal(root, request, links)
    wanted = network_refusal.wanted_modes(request, links)
    if wanted and not refused:
        from ovirt_rdma.host.effects.network_modes_run import set_modes  # noqa: PLC0415

        refused = set_modes(root or "/", wanted, POINT, lambda text: say(POINT, text))
        # What "auto" came to decides about the MTU.
        links = read_links(root, request.netdevs)
        refused = refused or _refusal(root, without_auto(request), links)
    if not refused:
        return Answer()
    say(POINT, f"refused: {refused}")
    return Answer(STOP, refused)


def _refusal(root: str, request: NetworkRequest, links: Mapping[str, Link]) -> str:
    asked = network_refusal.in_question(request, links)
    if not asked:
        return network_refusal.refusal(request, links)
    from ovirt_rdma.host.network_limits import datagram_limits  # noqa: PLC0415

    limits = datagram_limits(root or "/", asked)
    return network_refusal.refusal(request, links, limits)
