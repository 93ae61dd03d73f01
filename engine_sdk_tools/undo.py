# SPDX-License-Identifier: GPL-2.0-or-later
"""Roll back what a run has created in the engine after a part of it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, TypeVar

from ovirt_rdma.engine_sdk_tools.api.errors import MISSING, EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.progress import step as reported
from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode

T = TypeVar("T")


class RolledBack(Problem):
    """The run failed, and everything it made was rolled back (exit code 6)."""

    exit_code = ExitCode.ROLLED_BACK


@dataclass(frozen=True)
class Undo:
    """A call that undoes a change; ``manual_fix`` is what a person has to do if the
    engine refuses it: "remove the network X".

    ``wait`` waits until the engine has done it. ``first``: what was made before cannot
    be undone without it.
    """

    call: Call
    manual_fix: str
    wait: Callable[[], object] = lambda: None
    first: bool = False


@dataclass(frozen=True)
class Undone:
    """The result of a rollback: ``done`` as clauses ("removing the network X"),
    ``left`` as sentences with a fix each in ``manual_fixes``.
    """

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    manual_fixes: tuple[str, ...] = ()

    def told(self, error: Problem) -> Problem:
        """Return ``error`` with the result of the rollback; ``error`` itself if there
        was nothing to roll back.
        """
        if not self.done and not self.left:
            return error
        lines = [str(error)]
        if self.done:
            lines.append(f"rolled back: {'; '.join(self.done)}")
        if not self.left:
            return RolledBack(error.id, "\n".join(lines), error.fix)
        by_hand = f"manually: {'; '.join(self.manual_fixes)}"
        fix = f"{error.fix}; then {by_hand}" if error.fix else by_hand
        return Problem(error.id, "\n".join([*lines, *self.left]), fix)


def after_lost(lost: LostAnswer, look: Callable[[], T]) -> T:
    """Return the result of ``look``, which reads if the change of ``lost`` was made.

    Raises ``lost`` if the result is empty, or if the engine cannot be read.
    """
    try:
        result = look()
    except EngineProblem:
        raise lost from None
    if not result:
        raise lost
    return result


def undo(session: Session, made: Sequence[Undo], listener: Listener) -> Undone:
    """Undo what was ``made``, the last first; a failure does not raise."""
    done, left, by_hand = [], [], []
    impossible = False
    for step in reversed(made):
        if impossible:
            by_hand.append(step.manual_fix)
            continue
        call = step.call
        with reported(listener, call.doing, call.subject) as now:
            try:
                session.perform(call)
                step.wait()
                done.append(call.doing)
            except EngineProblem as error:
                # An object that no longer exists needs no rollback.
                now.problem = "" if error.kind == MISSING else str(error)
        if now.problem:
            left.append(f"not rolled back: {now.problem}")
            by_hand.append(step.manual_fix)
            impossible = step.first
    return Undone(tuple(done), tuple(left), tuple(dict.fromkeys(by_hand)))
