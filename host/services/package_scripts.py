# SPDX-License-Identifier: GPL-2.0-or-later
"""Do what the scripts of the package ovirt-rdma-host do after install and before erase.

Neither interrupts anything, restarts vdsmd or reverts a change of ``apply``. Only our
opensm is ended before erase: its unit goes with the package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.journal import (
    DONE,
    Journal,
    JournalProblem,
    Ledger,
    Listener,
)
from ovirt_rdma.host.changes.run import HostRun
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import JOURNAL, POLICY_YAML, STOCK_VDSMD, under
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.services.enablement import Advice, disable
from ovirt_rdma.host.services.opensm import OpensmRun
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.lock import one_run

# A run on a busy host takes as long; rpm waits.
_WAIT_S = 60.0


def notes_after_install(root: Union[str, Path]) -> list[Advice]:
    """Return what keeps the package below ``root`` from being used; reads only."""
    notes = []
    if not under(root, STOCK_VDSMD).exists():
        notes.append(
            Advice(
                "VDSM is not installed on this host, so hooks and launcher are not "
                "used yet",
                "add the host to the engine, which installs VDSM; nothing of "
                "ovirt-rdma has to be installed again",
            )
        )
    path = under(root, POLICY_YAML)
    try:
        load_policy_file(path)
    except PolicyProblem as problem:
        first = problem.reasons[0]
        more = len(problem.reasons) - 1
        others = f", and {more} more" if more else ""
        notes.append(
            Advice(
                f"the policy is invalid and was not loaded: {first}{others}",
                f"correct {path}, then: ovirt-rdma-host policy check",
            )
        )
    return notes


def prepare_erase(root: Union[str, Path], run: Optional[Runner] = None) -> list[Advice]:
    """Disable everything below ``root``, end our opensm, and remove our files if
    nothing is applied.

    Policy in force and journal stay as long as there is something to revert. ``run`` as
    for ``disable()``, whose errors this raises too. Returns what the admin has to know.
    """
    result = disable(root, run, wait_s=_WAIT_S)
    notes = []
    if result.restart_needed:
        notes.append(
            Advice(
                "the running vdsmd uses ovirt-rdma until its next start",
                "systemctl restart vdsmd (running VMs and mounts stay)",
            )
        )
    with one_run(root, _WAIT_S, by="erasing the package"):
        journal = Journal(root)
        try:
            journal.ledger()  # a damaged one is reported once
            notes += _without_opensm(root, run)
            left = _left(journal.ledger())
        except JournalProblem as problem:
            left = Advice(str(problem), problem.fix)
        if left is None:
            notes += _remove_files(under(root, JOURNAL).parent)
        else:
            notes.append(left)
    return notes


def _without_opensm(root: Union[str, Path], run: Optional[Runner]) -> list[Advice]:
    """Undo ``fabric sm enable``, if it was run; return what the admin has to know."""
    host = HostRun(root, "erasing the package", Listener(), run)
    try:
        result = OpensmRun(host).disable()
    except Problem as problem:
        return [Advice(problem.one_line, problem.fix)]
    if result.run is None:
        return []
    if result.outcome != DONE:
        return [Advice(f"opensm: {left.why}", left.fix) for left in result.left]
    fix = "have another subnet manager: without one, ports that come up later stay INIT"
    return [Advice("opensm, which fabric sm enable had started, was ended", fix)]


def _left(ledger: Ledger) -> Optional[Advice]:
    """Return the note of what stays applied; None if nothing does. Pure."""
    steps = ledger.applied_steps
    if not steps and ledger.interrupted is None:
        return None
    awaiting = ledger.awaiting
    never = (
        f" (run {awaiting.number} is not confirmed, and will not be rolled back now)"
        if awaiting
        else ""
    )
    return Advice(
        f"these steps stay applied, and the journal is kept{never}: "
        f"{', '.join(steps) or 'an interrupted run'}",
        "to undo them, install the package again, run ovirt-rdma-host revert, and "
        "remove the package then",
    )


def _remove_files(folder: Path) -> list[Advice]:
    """Remove the files in ``folder``; return what the admin has to know of those that
    stay: something may be mounted on one, or the file system may be read-only.
    """
    stay = []
    try:
        # Not folders: ovirt-rdma keeps the states of conversions in one.
        with os.scandir(folder) as found:
            entries = [e.path for e in found if not e.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        entries, stay = [], [f"{folder} ({error.strerror})"]
    for name in sorted(entries):
        try:
            Path(name).unlink()
        except OSError as error:
            stay.append(f"{name} ({error.strerror})")
    if not stay:
        return []
    fix = "remove it by hand; findmnt shows whether something is mounted there"
    return [Advice(f"not removed: {', '.join(stay)}", fix)]
