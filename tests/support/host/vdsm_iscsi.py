# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the commands of VDSM for iSCSI targets of the engine, word for word.

lib/vdsm/storage/iscsi.py (discoverSendTargets, addIscsiNode, loginToIscsiNode,
removeIscsiNode) and iscsiadm.py (discoverydb_new to discoverydb_delete, node_new to
node_login); the words are the same from 4.50.0.13 to 4.50.7. The tag is 1 unless the
engine sends another one (DEFAULT_TPGT in iscsi.py; _connectionDict2ConnectionInfo in
storageServer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from ovirt_rdma.host.system.commands import CommandFailed

Run = Callable[[Sequence[str]], str]


def discover(run: Run, portal: str, interface: str = "default") -> None:
    """Ask a portal for its targets, which writes records and removes them again."""
    words = ("iscsiadm", "-m", "discoverydb", "-t", "sendtargets", "-I", interface)
    for operation in ("--op=new", "--discover", "--op=delete"):
        run((*words, "-p", portal, operation))


def connect(run: Run, iqn: str, portal: str, interface: str = "default") -> None:
    """Add the record and log in (IscsiConnection.setup_node and connect_all). If that
    fails, log out and remove the record, as VDSM does.
    """
    words = _words(iqn, portal, interface)
    run((*words, "--op=new"))
    run((*words, "-n", "node.startup", "-v", "manual", "--op=update"))
    try:
        run((*words, "-l"))
    except CommandFailed:
        disconnect(run, iqn, portal, interface)


def disconnect(run: Run, iqn: str, portal: str, interface: str = "default") -> None:
    """Log out and remove the record (removeIscsiNode)."""
    words = _words(iqn, portal, interface)
    try:
        run((*words, "-u"))
    except CommandFailed as error:
        if error.returncode != 21:  # ISCSI_ERR_OBJECT_NOT_FOUND
            raise
    run((*words, "--op=delete"))


def _words(iqn: str, portal: str, interface: str) -> tuple[str, ...]:
    return ("iscsiadm", "-m", "node", "-T", iqn, "-I", interface, "-p", f"{portal},1")
