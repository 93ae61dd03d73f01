# SPDX-License-Identifier: GPL-2.0-or-later
"""A journal with the records of runs of every kind, for tests of the commands."""

from __future__ import annotations

from pathlib import Path

from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.model import (
    APPLY,
    DONE,
    HOOK,
    ROLLED_BACK,
    AtomicChange,
    Begin,
    Doing,
    Done,
    End,
    Record,
    Undone,
)
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, Change

BOOT = "5b5a1b1e-0000-4000-8000-000000000001"
AT = "2026-01-02T03:04:0{}+00:00"

TSO = AtomicChange(
    "IPOIB-TSO-01/ib0",
    "live",
    "revision a0",
    (Change(OFFLOAD, "ib0", "on", "off", "tx-tcp-segmentation"),),
    before=("on",),
    lasting=False,
)
MODE = AtomicChange(
    "IPOIB-MODE-01/ib0",
    "link-down",
    "the policy says so",
    (Change(PROFILE, "5f1a", "datagram", "connected", "infiniband.transport-mode"),),
    before=("datagram",),
)
OPTIONS = AtomicChange(
    "MODOPT-02/mlx4_core",
    "reboot",
    "the policy says so",
    (Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "# ours\noptions x y=1\n"),),
    before=(None,),
)


def write(root: Path, *records: Record) -> None:
    """Append records to the journal below ``root``."""
    journal = Journal(root)
    for record in records:
        journal.append(record)


def done_run(number: int, *acts: AtomicChange, **more) -> list[Record]:
    """Return the records of an apply that did ``acts``."""
    by = {"by": "ovirt-rdma-host apply", "policy": "sha256:0", **more}
    records: list[Record] = [Begin(number, APPLY, AT.format(number), BOOT, **by)]
    for index, act in enumerate(acts):
        found = tuple(change.after for change in act.changes)
        records += [Doing(number, index, act), Done(number, index, found)]
    return [*records, End(number, DONE, AT.format(number))]


def rolled_back_run(number: int, act: AtomicChange, why: str) -> list[Record]:
    """Return the records of a hook's run that was rolled back."""
    return [
        Begin(number, HOOK, AT.format(number), BOOT, by="before_vdsm_start"),
        Doing(number, 0, act),
        Undone(number, 0, number),
        End(number, ROLLED_BACK, AT.format(number), why),
    ]
