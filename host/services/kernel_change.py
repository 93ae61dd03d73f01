# SPDX-License-Identifier: GPL-2.0-or-later
"""Record the findings of ``check`` once a day and after each boot, and compare those of
two kernels: an update of the kernel may lose a module, a driver or a port.

Only failures and warnings are recorded. The record of the kernel before stays until
nothing differs from it any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import FINDINGS_JSON, under
from ovirt_rdma.host.rules.base import FAIL, PASS, WARN, Finding
from ovirt_rdma.host.system.files import not_written, write_atomically
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    Envelope,
    UnreadableJson,
    WrongRecord,
    read_json,
)
from ovirt_rdma.host.system.safe_file import read_file

_FILE_MODE = 0o644
_FIX = "remove it; the next check of ovirt-rdma-recheck.service writes it again"
FINDINGS = Envelope("findings")


@dataclass(frozen=True)
class BadFinding:
    """A finding that fails or warns."""

    rule: str
    subject: str
    verdict: str
    sentence: str
    fix: str


@dataclass(frozen=True)
class KernelFindings:
    """The bad findings with one kernel, and the digest of the policy they follow."""

    kernel: str
    policy: Optional[str]
    findings: tuple[BadFinding, ...]


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


def findings_of(
    kernel: str, policy: Optional[str], findings: Iterable[Finding]
) -> KernelFindings:
    """Return what is recorded of ``findings``. Pure."""
    bad = (
        BadFinding(f.rule, f.subject, f.verdict, str(f.sentence), f.fix)
        for f in findings
        if f.verdict in (FAIL, WARN)
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
    except UnreadableJson as error:
        raise Problem("findings-unreadable", f"{path}: {error}", _FIX) from error
    except WrongRecord as error:
        raise Problem("findings-invalid", f"{path}: {error}", _FIX) from error


def write_record(root: Union[str, Path], record: Record) -> None:
    """Write the record below ``root``. Raises Problem."""
    path = under(root, FINDINGS_JSON)
    data = FINDINGS.text(plain(record))
    try:
        path.parent.mkdir(mode=0o755, exist_ok=True, parents=True)
        write_atomically(path, data.encode(), _FILE_MODE)
    except OSError as error:
        raise not_written(error, path) from error
