# SPDX-License-Identifier: GPL-2.0-or-later
"""Register the connection class in the running VDSM, before its main() is called.

Only the launcher ``vdsmd`` calls this. Everything unexpected raises; the launcher then
starts stock VDSM in place of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ovirt_rdma.host import __version__
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DEGRADED_JSON, ENABLED, POLICY_JSON, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import PolicySource
from ovirt_rdma.host.services.enablement import MODE_VDSMD
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.storage.mounts import DegradedMarks
from ovirt_rdma.storage.readiness import ProbeContext, RecentAnswers
from ovirt_rdma.storage.vdsm.connection import (
    UnknownShape,
    Vdsm,
    connection_class,
    load,
    load_main,
)
from ovirt_rdma.storage.vdsm.export import Shared

# Version, extra options: the cases for which stock VDSM builds its options differently.
_SAMPLES = ((None, ""), ("3", "lock"), ("4.2", "rdma,port=20049"))
# If the file that `enable` writes lacks this line, it is for another mode.
_MARK = f"mode: {MODE_VDSMD}".encode()


@dataclass(frozen=True)
class Prepared:
    """VDSM's main function, sentences for syslog, and the version of our class."""

    main: Callable[[], Any]
    remarks: tuple[str, ...]
    version: str = __version__


def prepare(root: str = "/") -> Prepared:
    """Install the class; the launcher logs the remarks and calls VDSM's main().

    Raises Problem if the add-on is not enabled, UnknownShape if VDSM is not
    supported, and every error of an import.
    """
    _check_enabled(under(root, ENABLED))
    main = load_main()
    vdsm = load()
    marks = DegradedMarks(under(root, DEGRADED_JSON))
    around = ProbeContext(HostReader(root), RecentAnswers(), time.sleep)
    shared = Shared(around, marks=marks)
    install(vdsm, PolicySource(under(root, POLICY_JSON)).current, shared)
    remarks = [f"NFS connections are made by ovirt-rdma {__version__}"]
    # That is no reason to run stock VDSM: the copy of the policy is used, and without
    # rules our class behaves as stock VDSM and follows the next `policy load`.
    stored = store.in_force(under(root, POLICY_JSON))
    if stored.problem is not None:
        remarks.append(f"{stored.problem}; {stored.consequence}; {stored.problem.fix}")
    return Prepared(main, tuple(remarks))


def _check_enabled(marker: Path) -> None:
    try:
        lines = read_file(marker).splitlines()
    except FileNotFoundError:
        lines = []
    if _MARK not in lines:
        raise Problem(
            "enablement-mode-missing",
            f"{ENABLED} does not enable mode vdsmd",
            "run ovirt-rdma-host enable, or disable",
        )


def install(vdsm: Vdsm, policy: Callable[[], Policy], shared: Shared) -> None:
    """Register the connection class for NFS in ``vdsm``, after a test.

    Raises UnknownShape if an export without a rule would not be mounted as stock VDSM
    does.
    """
    # The policy without rules.
    _check_stock_stays_stock(vdsm, connection_class(vdsm, Policy, shared))
    vdsm.connection_types["nfs"] = connection_class(vdsm, policy, shared)


def _check_stock_stays_stock(vdsm: Vdsm, ours: Any) -> None:
    for version, extra in _SAMPLES:
        arguments = {
            "id": "guard",
            "export": "192.0.2.1:/guard",
            "version": version,
            "extraOptions": extra,
        }
        stock = vdsm.nfs_connection(**arguments)._mountCon
        mount = ours(**arguments)._mountCon
        for name in ("options", "remotePath", "vfsType"):
            if getattr(stock, name) != getattr(mount, name):
                raise UnknownShape(
                    f"a connection without a rule has {name} {getattr(mount, name)!r}, "
                    f"stock has {getattr(stock, name)!r}"
                )
