# SPDX-License-Identifier: GPL-2.0-or-later
"""What an open run keeps another one from doing. Pure."""

from __future__ import annotations

from ovirt_rdma.host.effects.ledger import Ledger
from ovirt_rdma.host.effects.run_result import Refused


def refuse_while_interrupted(ledger: Ledger) -> None:
    """Raise Refused where a run was interrupted and is not taken back yet."""
    run = ledger.interrupted
    if run:
        raise Refused(
            f"run {run.number} has not ended, and could not be taken back; nothing "
            "was changed",
            "see what the journal cannot note, then: ovirt-rdma-host revert",
        )


def refuse_while_awaiting(ledger: Ledger) -> None:
    """Raise Refused where a run awaits confirmation."""
    run = ledger.awaiting
    if run:
        raise Refused(
            f"run {run.number} awaits confirmation; nothing was changed",
            "ovirt-rdma-host confirm, or take it back: ovirt-rdma-host revert",
        )
