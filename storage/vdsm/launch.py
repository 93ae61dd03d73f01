# SPDX-License-Identifier: GPL-2.0-or-later
"""Put the connection class into the running VDSM, before its main() is called.

Called by the launcher ``vdsmd`` only. Raises at the first doubt; the launcher
then starts stock VDSM in place of this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ovirt_rdma.host import __version__
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.parsers.vdsm_conf import replaces_nfs_connections
from ovirt_rdma.host.enablement.state import MODE_VDSMD
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DEGRADED_JSON, ENABLED, POLICY_JSON, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import PolicySource
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.degraded import DegradedMarks
from ovirt_rdma.storage.recent_answers import RecentAnswers
from ovirt_rdma.storage.server_readiness import Surroundings
from ovirt_rdma.storage.vdsm import compat
from ovirt_rdma.storage.vdsm.connection import PolicyInForce, connection_class
from ovirt_rdma.storage.vdsm.context import Shared

# Version, extra options: the cases in which stock builds its options differently.
_SAMPLES = ((None, ""), ("3", "lock"), ("4.2", "rdma,port=20049"))
# Without it, the marker of `enable` is about another mode.
_MARK = f"mode: {MODE_VDSMD}".encode()


class LaunchRefused(Problem):
    """VDSM must run without us."""


@dataclass(frozen=True)
class Prepared:
    """VDSM's main function, to be called next, and sentences for the journal."""

    main: Callable[[], Any]
    remarks: tuple[str, ...]


class _NoRules:
    def current(self) -> Policy:
        return Policy()


def prepare(root: str = "/") -> Prepared:
    """Install the class; the launcher logs the remarks and calls VDSM's main().

    Raises LaunchRefused where the add-on is not enabled, UnknownShape where VDSM
    is not as we know it, and whatever an import raises.
    """
    _check_enabled(under(root, ENABLED))
    main = compat.load_main()
    vdsm = compat.load()
    marks = DegradedMarks(under(root, DEGRADED_JSON))
    network = RecentAnswers(probe)
    shared = Shared(Surroundings(HostReader(root), network), marks=marks)
    install(vdsm, PolicySource(under(root, POLICY_JSON)), shared)
    remarks = [
        f"NFS connections are made by ovirt-rdma {__version__}",
        *_policy_remarks(under(root, POLICY_JSON)),
    ]
    if replaces_nfs_connections(vdsm.nfs_mount_options):
        remarks.append(
            "vdsm.conf sets the deprecated irs/nfs_mount_options: connections for "
            "which the engine sends no NFS version, timeout or retransmissions bypass "
            "the policy; remove it"
        )
    return Prepared(main, tuple(remarks))


def _check_enabled(marker: Path) -> None:
    try:
        lines = read_file(marker).splitlines()
    except FileNotFoundError:
        lines = []
    if _MARK not in lines:
        raise LaunchRefused(
            "enablement-mode-missing",
            f"{ENABLED} does not say that mode vdsmd is on",
            "run ovirt-rdma-host enable, or disable",
        )


def _policy_remarks(path: Path) -> list[str]:
    """A stored policy that cannot be used is no reason to run stock VDSM: its copy
    counts, and without rules our class is as good as stock, and follows the next
    `policy load`.
    """
    found = store.in_force(path)
    if found.problem is None:
        return []
    return [f"{found.problem}; {found.consequence}; {found.problem.fix}"]


def install(vdsm: compat.Vdsm, policy: PolicyInForce, shared: Shared) -> None:
    """Register the connection class for NFS in ``vdsm``, after trying it out.

    Raises UnknownShape where an export without a rule would not be stock.
    """
    _check_stock_stays_stock(vdsm, connection_class(vdsm, _NoRules(), shared))
    ours = connection_class(vdsm, policy, shared)
    vdsm.connection_types["nfs"] = ours


def _check_stock_stays_stock(vdsm: compat.Vdsm, ours: Any) -> None:
    for version, extra in _SAMPLES:
        arguments = {
            "id": "guard",
            "export": "192.0.2.1:/guard",
            "version": version,
            "extraOptions": extra,
        }
        stock = vdsm.nfs_connection(**arguments)._mountCon
        same = ours(**arguments)._mountCon
        for name in ("options", "remotePath", "vfsType"):
            if getattr(stock, name) != getattr(same, name):
                raise compat.UnknownShape(
                    f"a connection without a rule has {name} {getattr(same, name)!r}, "
                    f"stock has {getattr(stock, name)!r}"
                )
