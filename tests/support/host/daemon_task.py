# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a task of the daemon in this process."""

from __future__ import annotations

from ovirt_rdma.host.daemon.loop import FAILED, Result, Task, Turn, run_once
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.store import FollowedPolicy


class Never:
    """A Stop that lets a loop continue."""

    def wait(self, seconds, files=()):
        return False


class TaskRuns:
    """Runs of ``task`` on the host below ``root``, as the daemon makes them. ``said``
    has the notes, and what is wrong each time that it was not the time before.
    """

    def __init__(self, task: Task, root, said=None) -> None:
        self.task, self.root = task, root
        self.said: list[str] = [] if said is None else said
        self._reported: tuple[str, ...] = ()

    def run(self, stop=None) -> Result:
        policy = FollowedPolicy(under(self.root, POLICY_JSON))
        policy.follow()
        problem, stored = policy.loaded.problem, policy.loaded.stored
        if problem and self.task.changes_host and not self.task.uses_copy:
            stored = None
        turn = Turn(stored, self.said.append, stop or Never())
        state, result, _ = run_once(self.task, turn)
        wrong = result.problems
        if state == FAILED:
            wrong = (f"failed: {result.sentence}",)
        self.said += [one for one in wrong if one not in self._reported]
        self._reported = wrong
        return result
