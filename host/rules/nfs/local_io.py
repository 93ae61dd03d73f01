# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-LOCALIO-01: data that goes past the connection over RDMA. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts.statistics import beyond_requests
from ovirt_rdma.host.rules.base import PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.nfs.mounts import (
    RdmaMount,
    no_mount,
    not_read,
    rdma_mounts,
)
from ovirt_rdma.host.rules.view import View

ID = "NFS-LOCALIO-01"
# Without LOCALIO the kernel has no such parameter.
_MODULE, _PARAMETER = "nfs", "localio_enabled"


def decide(view: View) -> Iterator[Finding]:
    """Yield a finding for each mount: whether its data uses its connection."""
    if not rdma_mounts(view):
        yield no_mount(ID)
    enabled = _enabled(view)
    here = {
        address.partition("/")[0]
        for netdev in view.facts.netdevs
        for address in netdev.addresses
    }
    for one in rdma_mounts(view):
        past = _past_the_connection(one)
        own = one.mount.address in here
        if past and enabled is False:
            yield Finding(
                ID,
                one.export,
                PASS,
                "its data uses its connection since LOCALIO was disabled; before "
                f"that, {past}",
            )
        elif past:
            yield Finding(
                ID,
                one.export,
                WARN,
                f"{past}: the kernel reads and writes the server's files directly "
                "(LOCALIO), so the proof of RDMA says nothing about the data",
                "no fix is needed for the data; to have it use RDMA: echo N > "
                f"/sys/module/{_MODULE}/parameters/{_PARAMETER}",
            )
        elif one.activity and one.activity.layout:
            sentence = "it uses pNFS, so its data uses connections to other servers"
            yield Finding(ID, one.export, SKIP, sentence)
        elif enabled is None:
            yield Finding(ID, one.export, PASS, "this kernel has no LOCALIO")
        elif one.activity is None:
            yield not_read(ID, one.export)
        elif own and enabled:
            yield Finding(
                ID,
                one.export,
                SKIP,
                "the server is this host, and LOCALIO is enabled; the counters do not "
                "show if it is used",
            )
        else:
            yield Finding(ID, one.export, PASS, "its data uses its connection")


def _enabled(view: View) -> Optional[bool]:
    """Return whether LOCALIO is enabled; None if the kernel has none."""
    for parameter in view.facts.modules.parameters:
        if (parameter.module, parameter.name) == (_MODULE, _PARAMETER):
            return parameter.value == "Y"
    return None


def _past_the_connection(one: RdmaMount) -> str:
    """Return what shows that data was moved without requests, or nothing.

    With pNFS the requests are in the counters of other servers.
    """
    done = one.activity
    if done is None or done.layout:
        return ""
    for what, moved, requests, size in (
        ("read", done.server_read, done.reads, one.shown("rsize")),
        ("written", done.server_written, done.writes, one.shown("wsize")),
    ):
        if moved is None or size is None:
            continue
        if beyond_requests(moved, requests, size) > 0:
            return f"{moved} bytes were {what} with {requests} requests"
    return ""


RULE = Rule(ID, decide)

RULES = (RULE,)
