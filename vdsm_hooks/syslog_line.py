# SPDX-License-Identifier: GPL-2.0-or-later
"""Write one line of a hook to syslog.

VDSM discards the stderr of before_vdsm_start, and logs that of the other hooks for the
admin of the engine.
"""

from __future__ import annotations

import syslog

from ovirt_rdma.host.system.printable import printable

IDENT = "ovirt-rdma"
# Enough for a sentence; a line longer than a datagram would not be logged at all.
_LONGEST = 1000


def say(point: str, sentence: str) -> None:
    """Write a line; never raises, so that an unavailable syslog has no effect."""
    try:
        line = printable(" ".join(f"{point}: {sentence}".split()))[:_LONGEST]
        line = line.encode("ascii", "backslashreplace").decode()
        syslog.openlog(IDENT, syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_NOTICE, line)
    except Exception:  # noqa: BLE001, S110
        pass


def reason(error: BaseException) -> str:
    """Return the cause: sentence and fix of a Problem, or another error's place."""
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
    except Exception:  # noqa: BLE001  (of its __str__, for example)
        return type(error).__name__
