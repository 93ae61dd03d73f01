# SPDX-License-Identifier: GPL-2.0-or-later
"""before_vdsm_start and after_network_setup: the steps that nobody notices; all else
becomes a line in the host's log.
"""

from __future__ import annotations

from ovirt_rdma.host.effects.live_run import live_run
from ovirt_rdma.host.network_links import read_links
from ovirt_rdma.vdsm_hooks.bounded import Answer
from ovirt_rdma.vdsm_hooks.hook_json import network_request
from ovirt_rdma.vdsm_hooks.log_line import say


def before_vdsm_start(root: str) -> Answer:
    """Do them for the whole host; also while VMs run and domains are mounted."""
    point = "before_vdsm_start"
    live_run(root or "/", point, lambda text: say(point, text))
    return Answer()


def after_network_setup(root: str) -> Answer:
    """Do them for the netdevs that VDSM has just set up; the engine has seen by now
    that it still reaches the host, so nothing may touch a link.
    """
    point = "after_network_setup"
    request = network_request()
    if request is None or request.rollback:
        return Answer()
    netdevs = read_links(root, request.netdevs)
    if netdevs:
        live_run(root or "/", point, lambda text: say(point, text), netdevs)
    return Answer()
