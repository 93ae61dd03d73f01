# SPDX-License-Identifier: GPL-2.0-or-later
"""Write a text to a file, with one write(2): add_target.py FILE TEXT.

A program of its own, with the standard library alone: a write to ib_srp's add_target
waits for the target, and only killing the process ends that. The exit status is the
number of the error, 0 for none. A line on stdout says that the write begins.
"""

import os
import sys


def main() -> int:
    """Return 0, or the errno of the write."""
    path, text = sys.argv[1:]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(1, b"\n")
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or 255
    return 0


if __name__ == "__main__":
    sys.exit(main())
