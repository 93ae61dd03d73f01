# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``block list|check|login|logout|rescan``: block storage over RDMA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import OTHER_RUN, HostVerb, add_policy
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output, count, sentences
from ovirt_rdma.cli.parser import (
    AllowNone,
    Context,
    Parser,
    add_allow_none,
    verdict_code,
)
from ovirt_rdma.host.block.logins import Target, differences, findings
from ovirt_rdma.host.block.read import BlockFacts, multipath_findings
from ovirt_rdma.host.block.sessions import BlockSessions, leaving_sessions
from ovirt_rdma.host.collect.storage import ISER, LOGGED_IN, RUNNING, Lun, Session
from ovirt_rdma.host.errors import Problem, Sentence, UsageProblem
from ovirt_rdma.host.facts.infiniband import TIMEOUTS
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.tree import FileTree

_PROGRAM = "ovirt-rdma-host"
_DAEMON = (
    "srp_daemon is running and logs in to every target that it finds and that "
    "/etc/srp_daemon.conf does not exclude; a logout may not last"
)


class List(HostVerb):
    """List sessions and LUNs."""

    codes = "0 listed"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        facts = BlockSessions(context.root).facts()
        _show(facts, context.output, "block", {"problems": facts.problems})
        return 0


class Check(HostVerb, AllowNone):
    """Compare the sessions with the policy; return 3 if something is missing."""

    codes = "0 nothing is wrong, 3 something is, is unknown, or there is nothing"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)
        add_allow_none(parser, "session and no target of the policy")

    def run(self, context: Context) -> int:
        output = context.output
        policy, source = policy_in_question(self.policy, context)
        block, sessions = policy.block, BlockSessions(context.root)
        facts = sessions.facts()
        found = findings(sessions.logins(block, facts), facts)
        problems = list(facts.problems)
        found += multipath_findings(FileTree(context.root), problems)
        failed = bool(found or problems)
        more = {"policy": source, "findings": sentences(found), "problems": problems}
        _show(facts, output, "block-check", more)
        if output.for_people:
            for finding in found:
                output.line(f"{finding}.")
            if not failed and block.targets:
                output.line(f"The block storage is as the policy says ({source}).")
            elif not failed:
                said = "no fault was found in the sessions"
                said = said if facts.sessions else "nothing was checked"
                output.line(f"The policy has no target ({source}): {said}.")
        looked_at = bool(facts.sessions or block.targets)
        return verdict_code(self, looked_at=looked_at, failed=failed)


class LogIn(HostVerb):
    """Log in to the SRP and iSER targets of the policy that have no session."""

    codes = f"0 all are logged in, 1 one failed, {OTHER_RUN}"
    examples = ("", "array1")
    more = "Reads the loaded policy. What is logged in already stays as it is."

    names: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_names(parser, "a target's name in the policy; default: all")

    def run(self, context: Context) -> int:
        output = context.output
        block = policy_in_question(None, context)[0].block
        targets = _named_targets(block, self.names)
        with one_run(context.root, by="block login"):
            made = BlockSessions(context.root).log_in(block, targets)
        if output.for_people:
            for one in made:
                done = "logged in" if one.made else "was logged in before"
                output.line(f"{one.title}: {one.problem or done}.")
            if not made:
                output.line("The policy has no target for block storage.")
            for note in (note for one in made for note in one.notes):
                output.message(f"warning: {note}")
        else:
            rows = [
                {
                    "target": one.target.name,
                    "device": one.device,
                    "port": one.port,
                    "logged_in": one.problem is None,
                    "made": one.made,
                    "problems": sentences(
                        [*([one.problem] if one.problem else []), *one.notes]
                    ),
                }
                for one in made
            ]
            output.document("block-login", {"logins": rows})
        return 1 if any(one.problem or one.notes for one in made) else 0


class LogOut(HostVerb):
    """Log out from SRP and iSER targets that nothing uses."""

    codes = f"0 logged out, 1 failed, 4 in use or perhaps another target's, {OTHER_RUN}"
    examples = ("array1", "0002c90300fb1230", "--all")
    more = (
        "A logout lasts until block login, the next boot or another block: in the\n"
        "policy. --all leaves iSER sessions alone that the policy does not have: they\n"
        "may be VDSM's. The record of open-iscsi stays."
    )

    names: list[str]
    all: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_names(parser, "a target's name in the policy, its ioc_guid or its IQN")
        parser.add_argument("--all", action="store_true", help="log out from all")

    def run(self, context: Context) -> int:
        output = context.output
        if self.all == bool(self.names):
            raise UsageProblem(
                "block-logout-names",
                "name the targets to log out from, or give --all",
                f"{_PROGRAM} block list shows them",
            )
        block = policy_in_question(None, context)[0].block
        sessions = BlockSessions(context.root)
        with one_run(context.root, by="block logout"):
            facts = sessions.facts()
            names = None if self.all else self.names
            logins = sessions.logins(block, facts)
            leaving, targets, unknown = leaving_sessions(logins, facts, names)
            if unknown:
                raise UsageProblem(
                    "block-session-unknown",
                    f"there is no session with {', '.join(unknown)}",
                    f"{_PROGRAM} block list shows them",
                )
            failed = sessions.log_out(leaving, block, targets)
        gone = [one for one in leaving if one not in failed]
        if output.for_people:
            for session in gone:
                output.line(f"{session.title}: logged out.")
            if not leaving:
                output.line("There is no session to log out from.")
            if facts.srp_daemon:
                output.message(f"warning: {Sentence('srp-daemon-running', _DAEMON)}")
            output.flush()
        else:
            content = {"sessions": [_session_document(one) for one in gone]}
            output.document("block-logout", content)
        _raise_failed([*failed.values()])
        return 0


class Rescan(HostVerb):
    """Look for new LUNs and sizes in all sessions."""

    codes = f"0 rescanned, 1 failed, {OTHER_RUN}"
    examples = ("",)
    more = "VDSM itself rescans Fibre Channel and iSCSI only, not SRP."

    def run(self, context: Context) -> int:
        output = context.output
        sessions = BlockSessions(context.root)
        with one_run(context.root, by="block rescan"):
            before = sessions.facts()
            failed = sessions.rescan(before.sessions)
            after = sessions.facts()
        changes = differences(before, after)
        if output.for_people:
            for sentence in changes:
                output.line(f"{sentence}.")
            if not changes:
                scanned = sum(one.is_up for one in before.sessions)
                output.line(f"Nothing new in {count(scanned, 'session')}.")
            output.flush()
        else:
            content = {"changes": sentences(changes), **_facts_document(after)}
            output.document("block-rescan", content)
        _raise_failed(failed)
        return 0


def _add_names(parser: Parser, help: str) -> None:
    parser.add_argument("names", metavar="TARGET", nargs="*", help=help)


def _named_targets(block: BlockPolicy, names: Iterable[str]) -> Sequence[Target]:
    known = dict.fromkeys(one.name for one in block.targets)
    for name in names:
        if name not in known:
            raise UsageProblem(
                "block-target-unknown",
                f"the policy has no target {name!r}; it has: "
                f"{', '.join(known) or 'none'}",
                f"{_PROGRAM} policy show",
            )
    wanted = set(names)
    return [one for one in block.targets if not wanted or one.name in wanted]


def _raise_failed(failed: Sequence[Sentence]) -> None:
    if failed:
        by_iscsid = failed[0].id.startswith(("iser-", "iscsi"))
        log = "-b -u iscsid" if by_iscsid else "-k"
        raise Problem(failed[0].id, "\n".join(failed), f"see journalctl {log}")


def _show(facts: BlockFacts, output: Output, kind: str, more: dict[str, Any]) -> None:
    """Show sessions and LUNs, and the ``problems`` in ``more``; the document has all of
    ``more``.
    """
    sessions = facts.sessions
    if not output.for_people:
        output.document(kind, {**_facts_document(facts), **more})
        return
    for problem in more["problems"]:
        output.message(f"note: {problem}")
    if not sessions:
        output.line("This host has no session of block storage over RDMA.")
        return
    output.table(
        ("TARGET", "PROTOCOL", "BY", "STATE", "LUNS"),
        [
            (
                one.target,
                "iSER" if one.protocol == ISER else "SRP",
                f"{one.device}/{one.port}" if one.device else one.portal or "-",
                one.state,
                str(len(one.luns)),
            )
            for one in sessions
        ],
        {RUNNING: "good", LOGGED_IN: "good"},
    )
    luns: dict[str, list[Lun]] = {}
    for lun in (lun for one in sessions for lun in one.luns):
        luns.setdefault(lun.wwid or lun.device, []).append(lun)
    if luns:
        output.line()
        output.table(
            ("WWID", "SIZE", "PATHS", "STATE", "MAP", "VDSM OFFERS IT"),
            [
                (
                    wwid,
                    paths[0].shown_size,
                    ",".join(lun.device for lun in paths),
                    ",".join(sorted({lun.state for lun in paths})),
                    paths[0].map or "-",
                    "no" if all(lun.not_offered for lun in paths) else "yes",
                )
                for wwid, paths in luns.items()
            ],
            {"no": "doubtful"},
        )


def _facts_document(facts: BlockFacts) -> dict[str, Any]:
    return {
        "sessions": [_session_document(one) for one in facts.sessions],
        "srp_ports": facts.srp_ports,
        "srp_daemon": facts.srp_daemon,
        "problems": list(facts.problems),
    }


def _session_document(session: Session) -> dict[str, Any]:
    content = asdict(replace(session, luns=(), timeouts=()))
    content["timeouts"] = dict(zip(TIMEOUTS, session.timeouts))
    luns = [{**asdict(lun), "offered": lun.not_offered is None} for lun in session.luns]
    return {**content, "luns": luns}
