# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal says to the follower: which P_Key children our runs made, and
whether a run is open that it has to wait for. Pure.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.effects.ledger import Ledger
from ovirt_rdma.host.effects.targets import makes_child
from ovirt_rdma.host.paths import PARTITIONS_UNIT
from ovirt_rdma.host.policy_host import partition_read
from ovirt_rdma.host.rules import ipoib_pkey
from ovirt_rdma.host.rules.ipoib_settings import P_KEY
from ovirt_rdma.host.rules.view import Interface


def made_by(ledger: Ledger, child: Interface) -> Optional[str]:
    """Return the id of the step that made ``child``, as long as that is held; None
    where no run of ours did, or it made another child of that name.
    """
    own = partition_read(child.netdev.ipoib.pkey if child.netdev.ipoib else None)
    step = f"{ipoib_pkey.ID}/{child.name}"
    for entry in ledger.held:
        if entry.act.step != step:
            continue
        for change in entry.act.changes:
            makes = change.name == P_KEY or makes_child(change)
            if makes and partition_read(change.after) == own:
                return step
    return None


def open_run(ledger: Ledger) -> str:
    """Say, as a sentence, which run has to be brought to an end first, or nothing.

    One of the follower's own that was interrupted does not count: nobody but it and
    the new children has to do with that.
    """
    if ledger.awaiting:
        return (
            f"run {ledger.awaiting.number} awaits confirmation; children follow the "
            "P_Key table again after ovirt-rdma-host confirm, or revert"
        )
    run = ledger.interrupted
    if run and run.begin.by != PARTITIONS_UNIT:
        return (
            f"run {run.number} ({run.begin.by or run.begin.verb}) was interrupted; "
            "children follow the P_Key table again after ovirt-rdma-host apply, or "
            "revert"
        )
    return ""
