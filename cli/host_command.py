# SPDX-License-Identifier: GPL-2.0-or-later
"""``ovirt-rdma-host``: runs the verb that the command line names.

Verbs are imported when they are called, so that ``--help`` and the light verbs
start fast and load no YAML.
"""

from __future__ import annotations

import sys

from ovirt_rdma.cli.command import run_command
from ovirt_rdma.cli.host_words import PROGRAM, parser
from ovirt_rdma.cli.words import named

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.screen import Screen


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code. Problems become sentences."""
    return run_command(PROGRAM, parser, arguments, _call)


def _call(words: Namespace, screen: Screen) -> int:
    return int(named(words.verb)(words, screen))


if __name__ == "__main__":
    sys.exit(main())
