# SPDX-License-Identifier: GPL-2.0-or-later
"""``ovirt-rdma``: runs the verb that the command line names.

Verbs, and with them the engine's SDK, requests and rich, are imported when they are
called; ``--help`` needs none of them.
"""

from __future__ import annotations

import contextlib
import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.engine_words import PROGRAM, parser
from ovirt_rdma.cli.words import named
from ovirt_rdma.host.problem import Problem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.screen import Screen
    from ovirt_rdma.engine_sdk_tools.host_report import HostDoor

# What a machine may lack, by the name of the import: package of EL9, and of PyPI.
_PACKAGES = {
    "ovirtsdk4": ("python3-ovirt-engine-sdk4", "ovirt-engine-sdk-python"),
    "pycurl": ("python3-pycurl", "pycurl"),
    "requests": ("python3-requests", "requests"),
    "rich": ("python3-rich", "rich"),
}


def main(
    arguments: Optional[Sequence[str]] = None, door: Optional[HostDoor] = None
) -> int:
    """Run the command; returns the exit code. Problems become sentences.

    ``door`` is the way to hypervisors, in place of what the words would give. A verb
    finds it in ``words``, beside ``screen`` and ``at_end``, an ExitStack that is closed
    when the verb is done.
    """

    def call(words: Namespace, screen: Screen) -> int:
        words.door, words.screen = door, screen
        try:
            with contextlib.ExitStack() as words.at_end:
                return int(named(words.verb)(words, screen))
        except ModuleNotFoundError as error:
            raise _lacking(error) from error

    return run_command(PROGRAM, parser, arguments, call)


def _lacking(error: ModuleNotFoundError) -> Exception:
    package = _PACKAGES.get((error.name or "").partition(".")[0])
    if package is None:
        return error
    return Problem(
        f"this machine lacks {package[0]}, which {PROGRAM} needs",
        f"dnf install {package[0]}, or pip install {package[1]}",
    )


if __name__ == "__main__":
    sys.exit(main())
