# SPDX-License-Identifier: GPL-2.0-or-later
"""Which records of a long journal are kept: all of each run that something is held of
or that is open, and all of the newest runs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from ovirt_rdma.host.effects.journal_records import Record
from ovirt_rdma.host.effects.ledger import fold

RUNS_KEPT = 100


def compacted(records: Sequence[Record], newest: int = RUNS_KEPT) -> tuple[Record, ...]:
    """Return the records of the runs to keep, in their order; the ledger of them is the
    ledger of all without the other runs. Raises WrongOrder as :func:`fold`.
    """
    runs = fold(records).runs
    kept = {run.number for run in runs[len(runs) - min(newest, len(runs)) :]}
    kept |= {run.number for run in runs if run.held or run.outcome is None}
    return tuple(record for record in records if record.run in kept)
