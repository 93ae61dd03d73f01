# SPDX-License-Identifier: GPL-2.0-or-later
"""Cause a fault, compare the results with what is expected, and end the fault."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Optional

from lab.fault import Act, ConnectFault, Expected, Fault, Row, WritingFault
from lab.fault_site import (
    CASES,
    RPC_SECONDS,
    Case,
    FaultSite,
    Writers,
    Written,
)
from lab.problem import LabProblem
from lab.vdsm_daemon import Outcome, local_path
from ovirt_rdma.storage.readiness import BURST_GAP_S

NOTHING = "nothing"
# A write is more than one call to the server: look up, write, close.
_CALLS = 3
# Seconds that emulation and other load on the machine may add to a time limit.
_SLACK = 10.0
# A lost RDMA connection is retried with growing pauses.
_HEAL_SECONDS = 60.0


def run(fault: Fault, site: FaultSite, cases: Sequence[Case] = CASES) -> list[Row]:
    """Try ``fault`` on ``site``; return a row for each of ``cases``.

    Raises LabProblem if the lab itself fails, or does not work again after the fault.
    """
    try:
        if isinstance(fault, ConnectFault):
            rows = _connect_all(fault, site, cases)
        else:
            rows = _write_all(fault, site, cases)
    finally:
        site.unmount_all()
    _see_that_all_is_well(site, fault)
    return rows


def _connect_all(
    fault: ConnectFault, site: FaultSite, cases: Sequence[Case]
) -> list[Row]:
    if fault.each_case:
        rows = []
        for case in cases:
            with _while_lasting(fault, site):
                rows.append(_connect(fault, site, case))
        return rows
    with _while_lasting(fault, site):
        rows = []
        for case in cases:
            # So that each case asks the server itself.
            time.sleep(BURST_GAP_S)
            rows.append(_connect(fault, site, case))
        return rows


def _connect(fault: ConnectFault, site: FaultSite, case: Case) -> Row:
    export = case.export(fault.server, fault.folder)
    outcome = site.connect(case, export)
    mounted = site.transport(export)
    site.unmount_all()
    says, fix = deciding_line(outcome.log)
    expected = fault.expected(case)
    return Row(
        fault.id,
        case,
        outcome.statuses[0],
        outcome.seconds,
        mounted or NOTHING,
        says,
        fix,
        wrong=tuple(_differences(expected, case, outcome, mounted, site)),
    )


def _differences(
    expected: Expected,
    case: Case,
    outcome: Outcome,
    mounted: Optional[str],
    site: FaultSite,
) -> Iterator[str]:
    if outcome.statuses != [expected.status]:
        yield f"status {outcome.statuses[0]}, not {expected.status}"
    at_most = _at_most(outcome.seconds, expected.within, site)
    if not expected.at_least <= outcome.seconds <= at_most:
        yield (
            f"{outcome.seconds:.1f} s, not between {expected.at_least:g} and"
            f" {at_most:g} s"
        )
    if mounted != expected.transport:
        yield f"{mounted or NOTHING} is mounted, not {expected.transport or NOTHING}"
    log = "\n".join(outcome.log)
    parts = expected.words(case.version)
    if expected.transport == "tcp":
        parts = (*parts, "FALLING BACK TO TCP")
    for part in parts:
        if part not in log:
            yield f"vdsm.log does not say {part!r}: {log}"
    good = expected.status == 0 and expected.transport == "rdma"
    if not good and not deciding_line(outcome.log)[1]:
        yield f"vdsm.log gives no fix: {log}"


def _at_most(seconds: float, limit: float, site: FaultSite) -> float:
    """Return ``limit``, on a busy machine multiplied by its slowness."""
    return limit if seconds <= limit else limit * site.slowness()


def deciding_line(log: Sequence[str]) -> tuple[str, str]:
    """Return the last warning or error of ``log`` (or else its last line), and the last
    fix of a warning or error.
    """
    loud = [line for line in log if line.startswith(("WARNING", "ERROR"))]
    parts = [line.partition("; fix: ") for line in loud or list(log) or [""]]
    fixes = [fix for _, _, fix in parts if fix]
    return parts[-1][0], fixes[-1] if fixes else ""


def _write_all(
    fault: WritingFault, site: FaultSite, cases: Sequence[Case]
) -> list[Row]:
    exports = [case.export("nas") for case in cases]
    for case, export in zip(cases, exports):
        _connect_over_rdma(site, case, export)
    writers = Writers(site, exports)
    limit = RPC_SECONDS * _CALLS + _SLACK
    with _while_lasting(fault, site):
        if fault.lasts is not None:
            time.sleep(fault.lasts)
        else:
            written = writers.wait(limit + RPC_SECONDS * _CALLS)
            during = [site.connect(*pair) for pair in zip(cases, exports)]
    if fault.lasts is not None:
        site.shell(f"sleep {RPC_SECONDS}")
        writers.stop()
        written = writers.wait(limit)
        during = [site.connect(*pair) for pair in zip(cases, exports)]
    rows = []
    for case, export, got, outcome in zip(cases, exports, written, during):
        mounted = site.transport(export) or NOTHING
        wrong = list(
            _writing_differences(fault, got, limit, outcome, mounted, site=site)
        )
        wrong += _healing_differences(fault, site, case, export)
        says, fix = deciding_line(outcome.log)
        rows.append(
            Row(
                fault.id,
                case,
                outcome.statuses[0],
                outcome.seconds,
                mounted,
                says,
                fix,
                f"{got.error or 'no error'}, after {got.longest:.1f} s",
                tuple(wrong),
            )
        )
    return rows


def _connect_over_rdma(site: FaultSite, case: Case, export: str) -> None:
    outcome = site.connect(case, export)
    if outcome.statuses != [0] or site.transport(export) != "rdma":
        raise LabProblem(f"{export} does not mount over RDMA: {outcome}")


def _writing_differences(
    fault: WritingFault,
    got: Written,
    limit: float,
    outcome: Outcome,
    mounted: str,
    *,
    site: FaultSite,
) -> Iterator[str]:
    if got.error != fault.error:
        yield f"the writer got {got.error}, not {fault.error}"
    if got.error is None and got.differences != 0:
        yield f"{got.differences} blocks are not as they were written"
    if got.longest > _at_most(got.longest, limit, site):
        yield f"a write took {got.longest:.1f} s, more than {limit:g} s"
    if fault.lasts is not None and got.longest < fault.lasts / 2:
        yield f"no write took longer than {got.longest:.1f} s: was there a fault?"
    if outcome.statuses != [0] or outcome.seconds > _at_most(
        outcome.seconds, _SLACK, site
    ):
        yield f"connecting what is mounted: {outcome}"
    if mounted != "rdma":
        yield f"{mounted} is mounted, not rdma"


def _healing_differences(
    fault: WritingFault, site: FaultSite, case: Case, export: str
) -> Iterator[str]:
    """Check that the export accepts data again after the fault."""
    if fault.forgets:
        site.disconnect(case, export)
        _connect_over_rdma(site, case, export)
    write = (
        f"until dd if=/dev/zero of={local_path(export)}/again bs=64k count=1"
        " oflag=direct status=none; do sleep 1; done"
    )
    try:
        site.shell(write, timeout=_HEAL_SECONDS)
    except LabProblem as problem:
        yield f"afterwards: {problem}"


def _see_that_all_is_well(site: FaultSite, fault: Fault) -> None:
    case = CASES[0]
    try:
        _connect_over_rdma(site, case, case.export("nas"))
    except LabProblem as problem:
        raise LabProblem(f"after {fault.id} the lab does not work: {problem}") from None
    finally:
        site.unmount_all()


@contextmanager
def _while_lasting(fault: Fault, site: FaultSite) -> Iterator[None]:
    begin: Act = fault.begin
    end: Act = fault.end
    try:
        begin(site)
        yield
    finally:
        end(site)
