# SPDX-License-Identifier: GPL-2.0-or-later
"""Do the work of the hooks around VDSM's network setup and start.

before_vdsm_start and after_network_setup apply the live steps of the plan; the ids of
all other differences from the policy are a line in syslog. before_network_setup refuses
what InfiniBand cannot do, and sets the IPoIB mode that a network requests. It loads the
rules only where they decide: their import takes four times as long as the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Optional

from ovirt_rdma.host.services.network_request import (
    Link,
    NetworkRequest,
    concerns_ipoib,
    parsed,
    read_links,
    refusal,
    undecided_netdevs,
    wanted_modes,
    without_auto,
)
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.vdsm_hooks.main import STOP, Answer, say

# VDSM common/hooks.py
VARIABLE = "_hook_json"


def network_request() -> Optional[NetworkRequest]:
    """Return the request that VDSM passes to the hook in a file; None if there is none
    or it does not have VDSM's form.
    """
    try:
        data = read_file(os.environ[VARIABLE])
        return parsed(json.loads(data.decode("utf-8")))
    except (KeyError, OSError, ValueError, RecursionError):
        return None


def before_vdsm_start(root: str) -> Answer:
    """Apply the live steps of the whole host, also with running VMs and mounted
    domains.
    """
    return _live("before_vdsm_start", root)


def after_network_setup(root: str) -> Answer:
    """Apply the live steps of the netdevs that VDSM has just set up.

    The engine has already verified that it can reach the host, so no link may go down.
    """
    request = network_request()
    if request is None or request.rollback:
        return Answer()
    netdevs = read_links(root, request.netdevs)
    return _live("after_network_setup", root, netdevs) if netdevs else Answer()


def _live(point: str, root: str, netdevs: Optional[Collection[str]] = None) -> Answer:
    from ovirt_rdma.host.services.hook_runs import live_run  # noqa: PLC0415

    live_run(root or "/", point, lambda text: say(point, text), netdevs)
    return Answer()


POINT = "before_network_setup"


def before_network_setup(root: str) -> Answer:
    """Return CONTINUE, or STOP with a sentence for the engine's event log.

    A request that is a rollback, or that cannot be read, is not checked.
    """
    request = network_request()
    if request is None:
        say(POINT, "VDSM's request could not be read, and is not checked")
        return Answer()
    if request.rollback:
        return Answer()
    links = read_links(root, request.netdevs)
    if not concerns_ipoib(links):
        return Answer()
    refused = _refusal(root, request, links)
    wanted = wanted_modes(request, links)
    if wanted and not refused:
        from ovirt_rdma.host.services.hook_runs import set_modes  # noqa: PLC0415

        refused = set_modes(root or "/", wanted, POINT, lambda text: say(POINT, text))
        # The mode chosen for "auto" decides about the MTU.
        links = read_links(root, request.netdevs)
        refused = refused or _refusal(root, without_auto(request), links)
    if not refused:
        return Answer()
    say(POINT, f"refused: {refused}")
    return Answer(STOP, refused)


def _refusal(root: str, request: NetworkRequest, links: Mapping[str, Link]) -> str:
    netdevs = undecided_netdevs(request, links)
    if not netdevs:
        return refusal(request, links)
    from ovirt_rdma.host.collect.collector import HostReader  # noqa: PLC0415

    limits = HostReader(root or "/").datagram_limits(netdevs)
    return refusal(request, links, limits)
