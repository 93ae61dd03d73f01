# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's notes: what it puts into the journal, and tells whoever listens.

Going forward, what cannot be noted is not done. On the way back it is done all the
same: a full disk must not keep a host half changed. After the first record that could
not be written none is: the journal then shows an open run, which the next one closes.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import Optional

from ovirt_rdma.host.effects.journal import Journal, JournalProblem
from ovirt_rdma.host.effects.journal_records import Record
from ovirt_rdma.host.effects.ledger import Ledger, fold
from ovirt_rdma.host.effects.run_result import Listener


class Notes:
    """The journal as it is, or would be. Raises JournalProblem where it is damaged."""

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener
        self._records = list(journal.records())
        self._ledger: Optional[Ledger] = journal.in_order(self._records)
        self.problem = ""

    @property
    def ledger(self) -> Ledger:
        """What the records come to, with those that could not be written."""
        if self._ledger is None:
            self._ledger = fold(self._records)
        return self._ledger

    @property
    def what_is_missing(self) -> str:
        """What a sentence about the run has to add where not all could be noted."""
        return f"; that is not noted: {self.problem}" if self.problem else ""

    def must(self, record: Record) -> None:
        """Note ``record``. Raises JournalProblem where that cannot be."""
        if self.problem:
            raise JournalProblem(self.problem)
        self._journal.append(record)
        self._know(record)

    def may(self, record: Record) -> None:
        """Note ``record``, if that can be; ``problem`` says so if not."""
        self._know(record)
        if self.problem:
            return
        try:
            self._journal.append(record)
        except JournalProblem as problem:
            self.problem = str(problem)
            self.say(f"{problem}: the next run looks at all of this again")

    def _know(self, record: Record) -> None:
        self._records.append(record)
        self._ledger = None

    def compact(self) -> None:
        """Let a journal that has grown long be written anew."""
        if not self.problem:
            with suppress(JournalProblem):
                self._journal.compact()

    def doing(self, step_id: str, sentence: str) -> None:
        """Tell that a step begins."""
        with suppress(OSError):
            self._listener.doing(step_id, sentence)

    def done(self, step_id: str, before: str, after: str) -> None:
        """Tell that a step is done."""
        with suppress(OSError):
            self._listener.done(step_id, before, after)

    def say(self, sentence: str) -> None:
        """Tell a sentence."""
        with suppress(OSError):
            self._listener.note(sentence)


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 UTC as ISO 8601, to the second."""
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
