# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that takes a while: its progress here, a job among the engine's tasks, and a
sentence on how to go on where it breaks off.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from ovirt_rdma.cli.engine_session import progress
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.engine_job import END_S, EngineJob, Listeners
from ovirt_rdma.engine_sdk_tools.progress import Listener, Silent
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.host.problem import Problem


class Work:
    """``listener`` is told how it goes on; it tells ``shown``, which is the progress
    here, and ``job``, the engine's. ``ended`` says how it ended.
    """

    def __init__(self, shown: Listener, job: Optional[EngineJob]) -> None:
        self.shown = shown
        self.job: Listener = job or Silent()
        self.listener = Listeners(shown, job) if job else shown
        self._open = job

    def ended(
        self, sentence: str, *, succeeded: bool, patience_s: float = END_S
    ) -> None:
        """End the job, with an event of the engine that says ``sentence``; tried for
        ``patience_s`` while the engine is away.
        """
        job, self._open = self._open, None
        if job is not None:
            job.finish(sentence, succeeded=succeeded, patience_s=patience_s)


@contextmanager
def work(
    words: Namespace,
    screen: Screen,
    session: Session,
    what: str,
    *,
    go_on: str,
    changes: bool = True,
) -> Iterator[Work]:
    """Give the Work that ``what`` describes ("create domain data2").

    Without ``--no-job`` it is a job of the engine, which ends as failed where an error
    goes through here; none where nothing ``changes``. ``go_on`` says how things
    stand where it breaks off: the operator interrupts it, or by a bug of ours.
    """
    shown: Listener = progress(words, screen)
    job = None
    if changes and not words.no_job:
        job = EngineJob(session, f"ovirt-rdma: {what}")
    done = Work(shown, job)
    try:
        yield done
    except Problem as problem:
        done.ended(f"{what} failed: {problem.one_line}", succeeded=False)
        raise
    except BaseException as error:
        # First what matters: ending the job may take a while, and be interrupted too.
        how = "was interrupted" if isinstance(error, KeyboardInterrupt) else "broke off"
        # The progress would take the line away with its own.
        words.at_end.close()
        screen.message(f"note: {what} {how}; {go_on}")
        done.ended(f"{what} {how}", succeeded=False, patience_s=0.0)
        raise
    done.ended(f"{what}: done", succeeded=True)
