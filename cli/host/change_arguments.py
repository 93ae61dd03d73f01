# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the arguments of the verbs that change the host, and of ``status``.

These are ``apply``, ``confirm``, ``revert``, ``history``, ``enable`` and ``disable``,
and ``unit``, which systemd units run.
"""

from __future__ import annotations

import argparse

from ovirt_rdma.cli.host.arguments import refuse_facts
from ovirt_rdma.cli.parser import Parser, add_verbs, define_verb, file_name

_OTHER_RUN = "75 another run is changing this host"

# In less than ten seconds nobody can verify and type; nobody waits for a day.
SHORTEST_S = 10
LONGEST_S = 86400


def apply(parser: Parser) -> None:
    """Define ``apply``."""
    define_verb(
        parser,
        "host.apply:apply",
        codes="0 done or nothing to do,\n"
        "1 failed, and not all could be rolled back, 4 refused as unsafe,\n"
        f"6 failed, and everything was rolled back, {_OTHER_RUN}",
        examples=("", "hv1-plan.json", "--confirm-timeout 120", "--live-only"),
        more="Applies what plan shows for the loaded policy. Each value is recorded\n"
        "before it is changed and verified afterwards. If a value is not\n"
        "accepted, the whole run is rolled back. Changes stay over a reboot;\n"
        "revert undoes them. A change that interrupts a netdev in use is\n"
        "refused.",
    )
    parser.add_argument(
        "planfile",
        metavar="PLANFILE",
        nargs="?",
        type=file_name,
        help="apply a plan saved by 'plan --out'; refused if the host has changed "
        "since",
    )
    parser.add_argument(
        "--confirm-timeout",
        metavar="S",
        type=_seconds,
        help="roll back the whole run unless 'confirm' is run within S seconds (10 "
        "to 86400)",
    )
    _link_down(parser)
    parser.add_argument(
        "--live-only",
        action="store_true",
        help="apply live steps, and steps that take effect at the next boot",
    )
    refuse_facts(parser)


def confirm(parser: Parser) -> None:
    """Define ``confirm``."""
    define_verb(
        parser,
        "host.apply:confirm",
        codes=f"0 confirmed, or nothing to confirm,\n1 too late, {_OTHER_RUN}",
        examples=("",),
        more="Without it the run is rolled back after the timeout.",
    )
    refuse_facts(parser)


def history(parser: Parser) -> None:
    """Define ``history``."""
    define_verb(
        parser,
        "host.revert:history",
        codes="0 printed, 1 the journal cannot be read",
        examples=("", "-v"),
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show each change with the value before and after",
    )


def revert(parser: Parser) -> None:
    """Define ``revert``."""
    define_verb(
        parser,
        "host.revert:revert",
        codes="0 reverted, or left because someone else changed it since,\n"
        "1 something could not be reverted,\n"
        f"4 refused as unsafe, {_OTHER_RUN}",
        examples=("", "IPOIB-MODE-01/ib0"),
        more="Restores the earlier values. A value that someone else has changed\n"
        "since is left unchanged, and this is reported.",
    )
    parser.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        type=_step,
        help="only this step; 'history -v' shows the ids",
    )
    _link_down(parser)
    refuse_facts(parser)


def unit(parser: Parser) -> None:
    """Add the verbs that our systemd units and the scripts of our package run."""
    group = add_verbs(parser)
    group.add("netdev", "set the boot settings of a netdev", _netdev)
    group.add("recover", "roll back a run that was interrupted", _recover)
    group.add("unconfirmed", "roll back a run that was not confirmed", _unconfirmed)
    group.add(
        "partitions",
        "keep P_Key children equal to the P_Key table of the port",
        _partitions,
    )
    group.add("caps", "write the capabilities that are reported to the engine", _caps)
    group.add("installed", "report what the installed package lacks", _installed)
    group.add("erased", "disable everything before the package is erased", _erased)
    group.add("recheck", "check the host, and compare with the kernel before", _recheck)


def _netdev(parser: Parser) -> None:
    _define_unit(parser, "netdev", "ib0")
    parser.add_argument("netdev", metavar="NAME", help="a netdev")


def _recover(parser: Parser) -> None:
    _define_unit(parser, "recover")


def _unconfirmed(parser: Parser) -> None:
    _define_unit(parser, "unconfirmed", "7")
    parser.add_argument("run", metavar="RUN", type=int, help="a run's number")


def _partitions(parser: Parser) -> None:
    _define_unit(parser, "partitions")


def _caps(parser: Parser) -> None:
    _define_unit(parser, "caps")


def _installed(parser: Parser) -> None:
    _define_unit(parser, "installed")


def _erased(parser: Parser) -> None:
    _define_unit(parser, "erased")


def _recheck(parser: Parser) -> None:
    _define_unit(parser, "recheck")


def _define_unit(parser: Parser, verb: str, example: str = "") -> None:
    define_verb(
        parser,
        f"host.units:{verb}",
        codes="0 done or nothing to do, 1 failed",
        examples=(example,),
        more="For systemd units and package scripts of ovirt-rdma.",
    )
    refuse_facts(parser)


def _link_down(parser: Parser) -> None:
    parser.add_argument(
        "--allow-link-down",
        action="store_true",
        help="also apply changes that interrupt a netdev in use for a moment",
    )


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    # Checked before int(), which refuses very long numbers with its own message.
    if len(text) > len(str(LONGEST_S)) or not SHORTEST_S <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text[:20]} is not {SHORTEST_S} to {LONGEST_S} seconds"
        )
    return int(text)


def _step(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(
            "the id is empty; give one, or omit it to revert everything"
        )
    return text


_CODES = (
    "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
    "75 another run is changing this host"
)
_MORE = "A second run changes nothing. "


def enable(parser: Parser) -> None:
    """Define ``enable``."""
    define_verb(
        parser,
        "host.enable:enable",
        codes=_CODES,
        examples=("", "--restart-vdsmd", "--mode host"),
        more="A second run changes nothing. In mode vdsmd, vdsmd uses the policy\n"
        "from its next start on, and VDSM's hooks and our units act. In mode\n"
        "host only the hooks and units act, and NFS is left to the engine. Only\n"
        "one mode can be on.",
    )
    parser.add_argument(
        "--mode", metavar="MODE", default="vdsmd", help="vdsmd or host; default: vdsmd"
    )
    _add_restart(parser)


def disable(parser: Parser) -> None:
    """Define ``disable``."""
    define_verb(
        parser,
        "host.enable:disable",
        codes=_CODES,
        examples=("", "--restart-vdsmd"),
        more="A second run changes nothing. A running vdsmd is unchanged until it is\n"
        "restarted.",
    )
    _add_restart(parser)


def status(parser: Parser) -> None:
    """Define ``status``."""
    define_verb(
        parser,
        "host.status:status",
        codes="0 printed, 3 the stored policy cannot be used",
        examples=("", "-o json"),
    )


def _add_restart(parser: Parser) -> None:
    parser.add_argument(
        "--restart-vdsmd",
        action="store_true",
        help="restart vdsmd at once, if it is not the one that the mode needs",
    )
    refuse_facts(parser)
