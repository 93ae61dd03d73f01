# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe a fault as data: how to cause it in the lab, and the expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from lab.fault_site import FOLDER, Case, FaultSite

Act = Callable[[FaultSite], None]


@dataclass(frozen=True)
class Expected:
    """What engine and admin get while the fault lasts.

    ``status`` is the engine's (0 is good); it must arrive ``within`` that number of
    seconds, and not before ``at_least`` seconds. ``transport`` is that of the resulting
    mount, None without one. vdsm.log contains ``says`` (``says_v3`` for NFS 3, if
    different) and ``also``, and its fix contains ``fix``.
    """

    status: int
    within: float
    transport: Optional[str]
    says: str
    fix: str = ""
    says_v3: Optional[str] = None
    fix_v3: Optional[str] = None
    at_least: float = 0.0
    also: str = ""

    def words(self, version: str) -> tuple[str, ...]:
        """Return the texts of vdsm.log: the reason, the fix, and one more."""
        says, fix = self.says, self.fix
        if version == "3":
            says = says if self.says_v3 is None else self.says_v3
            fix = fix if self.fix_v3 is None else self.fix_v3
        return says, fix, self.also


@dataclass(frozen=True)
class ConnectFault:
    """A fault when the engine connects an export of ``server``, below ``folder``.

    ``begin`` causes the fault and ``end`` ends it: once for all cases, or for
    ``each_case``. ``chosen`` are the cases that `make check` tries.
    """

    id: str
    sentence: str
    require: Expected
    prefer: Expected
    begin: Act
    end: Act
    server: str = "nas"
    folder: str = FOLDER
    each_case: bool = False
    chosen: tuple[Case, ...] = ()

    def expected(self, case: Case) -> Expected:
        """Return what is expected for ``case``."""
        return self.require if case.rule == "require-rdma" else self.prefer


@dataclass(frozen=True)
class WritingFault:
    """A fault while a virtual machine writes; its export is mounted over RDMA.

    ``error`` is what the writer should get (an errno's name, or None if it continues).
    ``advice`` is what an admin does then, if vdsm.log gives no fix. ``lasts`` is the
    duration in seconds; None: until the writers have given up. ``forgets``: the server
    comes back without its data, so the export is remounted.
    """

    id: str
    sentence: str
    error: Optional[str]
    begin: Act
    end: Act
    advice: str
    lasts: Optional[float] = None
    forgets: bool = False
    chosen: tuple[Case, ...] = ()


Fault = Union[ConnectFault, WritingFault]


@dataclass(frozen=True)
class Row:
    """The result of a case: a line of docs/faults.md.

    ``status`` and ``seconds`` are the engine's; ``mounted`` is the transport or
    ``nothing``; ``says`` and ``fix`` are from vdsm.log; ``writer`` is a writer's error.
    ``wrong`` are sentences about differences from what was expected.
    """

    fault: str
    case: Case
    status: int
    seconds: float
    mounted: str
    says: str = ""
    fix: str = ""
    writer: str = ""
    wrong: tuple[str, ...] = ()
