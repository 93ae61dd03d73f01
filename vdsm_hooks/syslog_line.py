# SPDX-License-Identifier: GPL-2.0-or-later
"""One line of a hook's in syslog: before_vdsm_start's stderr is lost, and what VDSM
logs of the others' is for the engine's admin.
"""

from __future__ import annotations

import syslog

from ovirt_rdma.host.system.printable import printable

IDENT = "ovirt-rdma"
# Enough for a sentence; more than a datagram takes would not be logged at all.
_LONGEST = 1000


def say(point: str, sentence: str) -> None:
    """Write a line; never raises, as nothing must come of what cannot be said."""
    try:
        line = printable(" ".join(f"{point}: {sentence}".split()))[:_LONGEST]
        line = line.encode("ascii", "backslashreplace").decode()
        syslog.openlog(IDENT, syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_NOTICE, line)
    except Exception:  # noqa: BLE001, S110
        pass


def reason(error: BaseException) -> str:
    """Return why, in words: our own problems are sentences, the rest has a place."""
    try:
        fix = getattr(error, "fix", None)
        if fix is not None:
            return f"{error}; {fix}" if fix else str(error)
        place, trace = "", error.__traceback__
        while trace:
            code = trace.tb_frame.f_code
            if not code.co_filename.startswith("<frozen"):
                place = f" ({code.co_filename}:{trace.tb_lineno})"
            trace = trace.tb_next
        return f"{type(error).__name__}: {error}{place}"
    except Exception:  # noqa: BLE001  (its __str__, say)
        return type(error).__name__
