# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments of the verbs that change the host.

The words of the verbs that change the host and change it back: ``apply``,
``confirm``, ``history`` and ``revert``; and of ``unit``, for our systemd units.

The words of ``enable``, ``disable`` and ``status``.
"""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.host.arguments import refuses_facts
from ovirt_rdma.cli.parser import Parser, add_verbs, be_verb, file_name

_OTHER_RUN = "75 another run is changing this host"

# Under ten seconds nobody can look and type; after a day nobody waits any more.
SHORTEST_S = 10
LONGEST_S = 86400


def apply(made: Parser) -> None:
    """Say what ``apply`` takes."""
    be_verb(
        made,
        "host.apply:apply",
        codes="0 done or nothing to do, 1 failed, and not all could be taken back,\n"
        "4 refused as unsafe, 6 failed, and everything was taken back,\n"
        f"{_OTHER_RUN}",
        examples=("", "hv1-plan.json", "--confirm-timeout 120", "--live-only"),
        more="Does what plan shows for the policy in force, and proves it: each value\n"
        "is noted before it is changed, and read back after. If one does not stick,\n"
        "all of this run is taken back. It stays over a boot; revert takes it back.\n"
        "A change that cuts off somebody who uses the netdev is refused.",
    )
    made.add_argument(
        "planfile",
        metavar="PLANFILE",
        nargs="?",
        type=file_name,
        help="do this plan, from 'plan --out', or nothing if it does not hold any more",
    )
    made.add_argument(
        "--confirm-timeout",
        metavar="S",
        type=_seconds,
        help="take all of it back unless 'confirm' comes within S seconds",
    )
    _link_down(made)
    made.add_argument(
        "--live-only", action="store_true", help="only do changes that nobody notices"
    )
    refuses_facts(made)


def confirm(made: Parser) -> None:
    """Say what ``confirm`` takes."""
    be_verb(
        made,
        "host.apply:confirm",
        codes=f"0 kept, or nothing to confirm, 1 too late, {_OTHER_RUN}",
        examples=("",),
        more="Keeps what 'apply --confirm-timeout' did.",
    )
    refuses_facts(made)


def history(made: Parser) -> None:
    """Say what ``history`` takes."""
    be_verb(
        made,
        "host.revert:history",
        codes="0 printed, 1 the journal cannot be read",
        examples=("", "-v"),
    )
    made.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show each change with the value before and after",
    )


def revert(made: Parser) -> None:
    """Say what ``revert`` takes."""
    be_verb(
        made,
        "host.revert:revert",
        codes="0 back, or left because someone else changed it since,\n"
        f"1 something could not be set back, 4 refused as unsafe, {_OTHER_RUN}",
        examples=("", "IPOIB-MODE-01/ib0"),
        more="Sets back what apply and the hooks changed, to the values from before.\n"
        "A value that someone else changed since is left, and said.",
    )
    made.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        type=_step,
        help="only this change; 'history -v' shows the ids",
    )
    _link_down(made)
    refuses_facts(made)


def unit(made: Parser) -> None:
    """Add the verbs of our systemd units, which nobody types."""
    group = add_verbs(made)
    group.add("netdev", "set again what no file keeps of a netdev", _netdev)
    group.add("recover", "take back what was interrupted", _recover)
    group.add("unconfirmed", "take back a run that nobody confirmed", _unconfirmed)
    group.add("partitions", "keep P_Key children as the port has them", _partitions)
    group.add("caps", "write what the engine is told of this host", _caps)


def _netdev(made: Parser) -> None:
    _be_unit(made, "netdev", "ib0")
    made.add_argument("netdev", metavar="NAME", help="a netdev")


def _recover(made: Parser) -> None:
    _be_unit(made, "recover")


def _unconfirmed(made: Parser) -> None:
    _be_unit(made, "unconfirmed", "7")
    made.add_argument("run", metavar="RUN", type=int, help="a run's number")


def _partitions(made: Parser) -> None:
    _be_unit(made, "partitions")


def _caps(made: Parser) -> None:
    _be_unit(made, "caps")


def _be_unit(made: Parser, verb: str, example: str = "") -> None:
    be_verb(
        made,
        f"host.units:{verb}",
        codes="0 done or nothing to do, 1 failed",
        examples=(example,),
        more="For systemd units of ovirt-rdma.",
    )
    refuses_facts(made)


def _link_down(made: Parser) -> None:
    made.add_argument(
        "--allow-link-down",
        action="store_true",
        help="also where somebody uses the netdev, and is cut off for a moment",
    )


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    # Before int(), which refuses very long ones in its own words.
    if len(text) > len(str(LONGEST_S)) or not SHORTEST_S <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"it takes {SHORTEST_S} to {LONGEST_S} seconds, not {text[:20]}"
        )
    return int(text)


def _step(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "the id is empty; give one, or leave it out to revert everything"
        )
    return text


_CODES = (
    "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
    "75 another run is changing this host"
)
_MORE = "A second run changes nothing. "


def enable(made: Parser) -> None:
    """Say what ``enable`` takes."""
    be_verb(
        made,
        "host.enable:enable",
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
        "host.enable:disable",
        codes=_CODES,
        examples=("", "--restart-vdsmd"),
        more=f"{_MORE}vdsmd goes on as it is until it is restarted.",
    )
    _acts(made)


def status(made: Parser) -> None:
    """Say what ``status`` takes."""
    be_verb(made, "host.status:status", codes="0 printed", examples=("", "-o json"))


def _acts(made: Parser) -> None:
    made.add_argument(
        "--restart-vdsmd", action="store_true", help="restart vdsmd right away"
    )
    refuses_facts(made)
