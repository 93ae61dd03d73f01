# SPDX-License-Identifier: GPL-2.0-or-later
"""Taking back what a run has made in the engine, after a part of it failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable, TypeVar

from ovirt_rdma.engine_sdk_tools.api.errors import MISSING, EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.host.errors import Problem

T = TypeVar("T")


class TakenBack(Problem):
    """It failed, and all that was made is gone again (exit code 6)."""

    exit_code = 6


@dataclass(frozen=True)
class Undo:
    """``call`` takes something back; ``by_hand`` is what a person has to do where the
    engine refuses it: "remove the network X".
    """

    call: Call
    by_hand: str


@dataclass(frozen=True)
class Undone:
    """What was taken back, as clauses, and what was not, as sentences."""

    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()

    def told(self, error: Problem) -> Problem:
        """Return ``error`` with what became of what was made by then.

        Where nothing was, it is ``error`` itself.
        """
        if not self.done and not self.left:
            return error
        lines = [str(error)]
        if self.done:
            lines.append(f"taken back: {'; '.join(self.done)}")
        if not self.left:
            return TakenBack(error.id, "\n".join(lines), error.fix)
        by_hand = f"by hand: {'; '.join(self.by_hand)}"
        fix = f"{error.fix}; then {by_hand}" if error.fix else by_hand
        return Problem(error.id, "\n".join([*lines, *self.left]), fix)


def after_lost(lost: LostAnswer, look: Callable[[], T]) -> T:
    """Return what ``look`` finds of a change whose answer was ``lost``.

    Raises ``lost``, which says that it may be made, where that is nothing, and where
    the engine cannot be asked.
    """
    try:
        found = look()
    except EngineProblem:
        raise lost from None
    if not found:
        raise lost
    return found


def undo(session: Session, made: Sequence[Undo], listener: Listener) -> Undone:
    """Take back what was ``made``, the last first; never raises for one that fails."""
    done, left, by_hand = [], [], []
    for one in reversed(made):
        call = one.call
        listener.begin(call.doing, call.about)
        problem = ""
        try:
            session.perform(call)
        except EngineProblem as error:
            # What is gone needs no taking back.
            problem = "" if error.kind == MISSING else str(error)
        listener.end(call.doing, call.about, problem)
        if problem:
            left.append(f"not taken back: {problem}")
            by_hand.append(one.by_hand)
        else:
            done.append(call.doing)
    return Undone(tuple(done), tuple(left), tuple(by_hand))
