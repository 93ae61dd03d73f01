# SPDX-License-Identifier: GPL-2.0-or-later
"""Write a text to a file, with one write(2): add_target.py FILE TEXT SECONDS.

A program of its own, with the standard library alone: a write to ib_srp's add_target
waits for the target, and only killing the process ends that. SIGALRM does it when the
write takes longer than SECONDS. Otherwise the exit status is the number of the error,
0 for none.
"""

import os
import signal
import sys


def main() -> int:
    """Return 0, or the errno of the write."""
    path, text, seconds = sys.argv[1:]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            signal.setitimer(signal.ITIMER_REAL, float(seconds))
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or 255
    return 0


if __name__ == "__main__":
    sys.exit(main())
