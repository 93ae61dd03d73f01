# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the findings of ``check`` once a day and after each boot, and compare those of
two kernels: an update of the kernel may lose a module, a driver or a port.

Only failures and warnings are recorded. The record of the kernel before stays until
nothing differs from it any more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import FINDINGS_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.model import digest as policy_digest
from ovirt_rdma.host.rules.base import FAIL, PASS, WARN, Finding
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.files import write_public
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    WrongRecord,
    plain,
    read_json,
)
from ovirt_rdma.host.system.safe_file import read_file

_DAY_S = 86400.0
_FIX = "remove it; the daemon writes it again once a day"
FINDINGS = Envelope("findings")


@dataclass(frozen=True)
class KernelFindings:
    """The findings that fail or warn with one kernel, and their policy's digest."""

    kernel: str
    policy: Optional[str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Record:
    """The newest findings, and the last ones with the kernel before, if they differ."""

    now: KernelFindings
    before: Optional[KernelFindings]


@dataclass(frozen=True)
class Difference:
    """A finding that differs between two kernels; PASS stands for no bad finding."""

    rule: str
    subject: str
    verdict: str
    was: str
    sentence: str
    fix: str

    def __str__(self) -> str:
        said = f": {self.sentence}" if self.verdict != PASS else ""
        return f"{self.verdict} {self.rule} {self.subject} (was {self.was}){said}"


_records = Records("the recorded findings")


class Recheck(Task):
    """Does what ``check`` does, and says what differs after the boot of another
    kernel.
    """

    name = "recheck"
    # Modules, links and vdsmd are up by then.
    first_s = 300.0
    deadline_s = 180.0
    every_s = _DAY_S

    def run(self, turn: Turn) -> Result:
        """Check the host, record the result, and note what differs. Raises Problem."""
        with contextlib.suppress(OSError):
            os.nice(19)  # Nothing waits for it.
        facts = HostReader(self.root, self.tools).facts()
        kernel = facts.kernel_release
        digest = turn.stored.digest if turn.stored else policy_digest(Policy())
        now = findings_of(kernel, digest, decide(facts, turn.policy).findings)
        try:
            earlier = read_record(self.root)
        except Problem as problem:
            turn.note(f"{problem}; it is replaced")
            earlier = None
        record = record_after(earlier, now)
        write_record(self.root, record)
        if earlier is not None and earlier.now.kernel != kernel:
            found = differences(record)
            what = f"{len(found)} finding{'' if len(found) == 1 else 's'} changed"
            turn.note(f"kernel {kernel}: {what} since kernel {earlier.now.kernel}")
            for difference in found:
                turn.note(str(difference))
        failed = sum(finding.verdict == FAIL for finding in now.findings)
        return Result(f"check: {failed} failed, {len(now.findings) - failed} warned")


def findings_of(
    kernel: str, policy: Optional[str], findings: Iterable[Finding]
) -> KernelFindings:
    """Return what is recorded of ``findings``. Pure."""
    bad = (
        replace(finding, sentence=str(finding.sentence))
        for finding in findings
        if finding.verdict in (FAIL, WARN)
    )
    return KernelFindings(kernel, policy, tuple(bad))


def record_after(record: Optional[Record], now: KernelFindings) -> Record:
    """Return the record with the findings ``now``. Pure."""
    if record is None:
        return Record(now, None)
    changed = record.now.kernel != now.kernel
    after = Record(now, record.now if changed else record.before)
    return after if differences(after) else Record(now, None)


def differences(record: Record) -> tuple[Difference, ...]:
    """Return what differs from the kernel before, failures first. Pure."""
    if record.before is None:
        return ()
    now = {(f.rule, f.subject): f for f in record.now.findings}
    before = {(f.rule, f.subject): f for f in record.before.findings}
    found = []
    for key in {**now, **before}:
        new, old = now.get(key), before.get(key)
        verdict, was = (f.verdict if f else PASS for f in (new, old))
        if verdict != was:
            sentence, fix = (new.sentence, new.fix) if new else ("", "")
            found.append(Difference(*key, verdict, was, sentence, fix))
    return tuple(sorted(found, key=lambda one: (FAIL, WARN, PASS).index(one.verdict)))


def read_record(root: Union[str, Path]) -> Optional[Record]:
    """Return the record below ``root``; None if there is none. Raises Problem."""
    path = under(root, FINDINGS_JSON)
    if not path.exists():
        return None
    try:
        return _records.read(Record, FINDINGS.content(read_json(path, read_file)))
    except WrongRecord as error:
        raise Problem("findings-invalid", f"{path}: {error}", _FIX) from error


def write_record(root: Union[str, Path], record: Record) -> None:
    """Write the record below ``root``. Raises Problem."""
    write_public(under(root, FINDINGS_JSON), FINDINGS.text(plain(record)))
