# SPDX-License-Identifier: GPL-2.0-or-later
"""A journal with runs of every kind, for tests of the commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.changes.journal import (
    APPLY,
    DONE,
    HOOK,
    ROLLED_BACK,
    Journal,
    Run,
)
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, Change

BOOT = "5b5a1b1e-0000-4000-8000-000000000001"
AT = "2026-01-02T03:04:0{}+00:00"

TSO = AtomicChange(
    "IPOIB-TSO-01/ib0",
    "live",
    (Change(OFFLOAD, "ib0", "on", "off", "tx-tcp-segmentation"),),
    lasting=False,
)
MODE = AtomicChange(
    "IPOIB-MODE-01/ib0",
    "link-down",
    (Change(PROFILE, "5f1a", "datagram", "connected", "infiniband.transport-mode"),),
)
OPTIONS = AtomicChange(
    "MODOPT-02/mlx4_core",
    "reboot",
    (Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "# ours\noptions x y=1\n"),),
)


def write(root: Path, *runs: Run) -> None:
    """Write ``runs`` to the journal below ``root``, besides those that it has."""
    journal = Journal(root)
    ledger = journal.ledger()
    for run in runs:
        ledger = ledger.with_run(run)
    journal.write(ledger)


def changes_of(number: int, *acts: AtomicChange) -> tuple[AtomicChange, ...]:
    """Return ``acts`` as the changes of a run, made and read back."""
    return tuple(
        replace(act, run=number, number=index, boot=BOOT, found=_planned(act))
        for index, act in enumerate(acts)
    )


def _planned(act: AtomicChange) -> tuple[Optional[str], ...]:
    return tuple(change.after for change in act.changes)


def done_run(number: int, *acts: AtomicChange, **more) -> Run:
    """Return an apply that did ``acts``."""
    at = AT.format(number)
    ends = {"outcome": DONE, "ended": at, "acts": changes_of(number, *acts)}
    by = {"by": "ovirt-rdma-host apply", "policy": "sha256:0", **more}
    return Run(number, APPLY, at, **{**ends, **by})


def rolled_back_run(number: int, act: AtomicChange, why: str) -> Run:
    """Return a hook's run that was rolled back."""
    at = AT.format(number)
    (change,) = changes_of(number, act)
    undone = replace(change, found=None, undone_by=number)
    more = {"acts": (undone,), "outcome": ROLLED_BACK, "ended": at, "sentence": why}
    return Run(number, HOOK, at, by="before_vdsm_start", **more)
