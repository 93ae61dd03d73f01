# SPDX-License-Identifier: GPL-2.0-or-later
"""The words of ``enable``, ``disable`` and ``status``."""

from __future__ import annotations

from ovirt_rdma.cli.host_options import refuses_facts
from ovirt_rdma.cli.words import Parser, be_verb

_CODES = (
    "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
    "75 another run is changing this host"
)
_MORE = "A second run changes nothing. "


def enable(made: Parser) -> None:
    """Say what ``enable`` takes."""
    be_verb(
        made,
        "enablement_verbs:enable",
        codes=_CODES,
        examples=("", "--restart-vdsmd", "--mode host"),
        more=f"{_MORE}Mode vdsmd puts the policy into vdsmd, from its\n"
        "next start on. Mode host leaves NFS to the engine and lets VDSM's hooks and\n"
        "our units act, as mode vdsmd does too. Only one mode can be on.",
    )
    made.add_argument(
        "--mode", default="vdsmd", help="vdsmd, which is the default, or host"
    )
    _acts(made)


def disable(made: Parser) -> None:
    """Say what ``disable`` takes."""
    be_verb(
        made,
        "enablement_verbs:disable",
        codes=_CODES,
        examples=("", "--restart-vdsmd"),
        more=f"{_MORE}vdsmd goes on as it is until it is restarted.",
    )
    _acts(made)


def status(made: Parser) -> None:
    """Say what ``status`` takes."""
    be_verb(made, "status_verb:status", codes="0 printed", examples=("", "-o json"))


def _acts(made: Parser) -> None:
    made.add_argument(
        "--restart-vdsmd", action="store_true", help="restart vdsmd right away"
    )
    refuses_facts(made)
