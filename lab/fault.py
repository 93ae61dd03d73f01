# SPDX-License-Identifier: GPL-2.0-or-later
"""A fault as data: what happens to the lab, and what may come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from lab.fault_site import FOLDER, Case, FaultSite

Act = Callable[[FaultSite], None]


@dataclass(frozen=True)
class Expected:
    """What engine and admin get while the fault lasts.

    ``status`` is the engine's (0 is good); it must come ``within`` so many seconds, and
    not before ``at_least``. ``transport`` is what is left mounted, None for nothing.
    ``says`` is in vdsm.log (``says_v3`` for NFS 3, where that differs), ``also`` too,
    and ``fix`` is in what it advises.
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
        """Return what vdsm.log says and advises, and what it says also."""
        says, fix = self.says, self.fix
        if version == "3":
            says = says if self.says_v3 is None else self.says_v3
            fix = fix if self.fix_v3 is None else self.fix_v3
        return says, fix, self.also


@dataclass(frozen=True)
class ConnectFault:
    """Trouble when the engine connects an export of ``server``, below ``folder``.

    ``begin`` and ``end`` bring it about and undo it: once for all cases, or for
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
        """Return what is to come of ``case``."""
        return self.require if case.rule == "require-rdma" else self.prefer


@dataclass(frozen=True)
class WritingFault:
    """Trouble while a virtual machine writes; its export is mounted over RDMA.

    ``error`` is what the writer is to get (an errno's name, or None where it goes on).
    ``advice`` is what an admin does then, for whom vdsm.log has nothing to say.
    ``lasts`` is after how many seconds it ends, None: when the writers have given up.
    ``forgets``: the server comes back without its data, so a mount is made anew.
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
    """What came of a case: a line of docs/faults.md.

    ``status`` and ``seconds`` are the engine's; ``mounted`` is the transport or
    ``nothing``; ``says`` and ``fix`` are vdsm.log's; ``writer`` is what a writer got.
    ``wrong`` are sentences about what is not as expected.
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
