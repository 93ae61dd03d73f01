# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``block list|check|login|logout|rescan``: block storage over RDMA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import OTHER_RUN, HostVerb, add_policy, refuse_facts
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.host.shown.block import (
    facts_document,
    print_logins,
    print_sessions,
    sentences,
    session_document,
    size,
)
from ovirt_rdma.cli.host.shown.block import (
    logins as shown_logins,
)
from ovirt_rdma.cli.output import count
from ovirt_rdma.cli.parser import Parser, Verb
from ovirt_rdma.host.block.logins import Login, NoLogin, address_of, wanted_logins
from ovirt_rdma.host.block.model import (
    RUNNING,
    TIMEOUTS,
    BlockFacts,
    BlockProblem,
    BlockRefused,
    Lun,
    Session,
)
from ovirt_rdma.host.block.read import BlockReader
from ovirt_rdma.host.block.srp import Srp, srp_sessions
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Sentence, UsageProblem
from ovirt_rdma.host.policy.block_fields import BlockPolicy, SrpTarget
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.tree import FileTree

_DAEMON = Sentence(
    "srp-daemon-running",
    "srp_daemon is running and logs in to every target that it finds and that "
    "/etc/srp_daemon.conf does not exclude; a logout may not last",
)


@dataclass(frozen=True)
class List(HostVerb):
    """List sessions and LUNs."""

    codes = "0 listed"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        output = context.output
        facts = _facts(context.root)
        if not output.for_people:
            output.document("block", facts_document(facts))
            return 0
        for sentence in facts.problems:
            output.message(f"note: {sentence}")
        print_sessions(facts.sessions, output)
        return 0


@dataclass(frozen=True)
class Check(HostVerb):
    """Compare the sessions with the policy; return 3 if something is missing."""

    codes = "0 all is as the policy says, 3 something is not"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)

    def run(self, context: Context) -> int:
        output = context.output
        policy, source = policy_in_question(self.policy, context)
        facts = _facts(context.root)
        wanted = _wanted(policy.block, policy.block.srp, facts, context.root)
        findings = [*_findings(wanted), *_session_findings(facts)]
        findings += _iser_findings(policy.block, facts)
        if output.for_people:
            for sentence in facts.problems:
                output.message(f"note: {sentence}")
            print_sessions(facts.sessions, output)
            for sentence in findings:
                output.line(f"{sentence}.")
            if not findings:
                output.line(f"The block storage is as the policy says ({source}).")
        else:
            content = {
                **facts_document(facts),
                "policy": source,
                "findings": sentences(findings),
            }
            output.document("block-check", content)
        return 3 if findings else 0


@dataclass(frozen=True)
class LogIn(HostVerb):
    """Log in to the SRP targets of the policy that have no session."""

    codes = f"0 all are logged in, 1 one failed, {OTHER_RUN}"
    examples = ("", "array1")
    more = "Reads the loaded policy. What is logged in already stays as it is."

    names: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_names(parser, "a target's name in the policy; default: all")
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        policy, _ = policy_in_question(None, context)
        targets = _named_targets(policy.block, self.names)
        srp = Srp(context.root, _runner(context.root))
        with one_run(context.root, by="block login"):
            if targets:
                srp.load_module()
            facts = _facts(context.root)
            wanted = _wanted(policy.block, targets, facts, context.root)
            logins = [one for one in wanted if isinstance(one, Login)]
            outcomes = srp.log_in(logins, policy.block.login_timeout)
        refused = [one for one in wanted if isinstance(one, NoLogin)]
        failed = [one for one in outcomes if one.problem]
        notes = [note for one in outcomes for note in one.notes]
        if output.for_people:
            print_logins(outcomes, refused, output)
            for note in notes:
                output.message(f"warning: {note}")
        else:
            output.document("block-login", {"logins": shown_logins(outcomes, refused)})
        return 1 if failed or refused or notes else 0


@dataclass(frozen=True)
class LogOut(HostVerb):
    """Log out from SRP targets that nothing uses."""

    codes = f"0 logged out, 1 failed, 4 a LUN is in use, {OTHER_RUN}"
    examples = ("array1", "0002c90300fb1230", "--all")

    names: list[str]
    all: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_names(parser, "a target's name in the policy, or its ioc_guid")
        parser.add_argument("--all", action="store_true", help="log out from all")
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        if self.all == bool(self.names):
            raise UsageProblem(
                "block-logout-names",
                "name the targets to log out from, or give --all",
                f"{PROGRAM} block list shows them",
            )
        policy, _ = policy_in_question(None, context)
        reader = BlockReader(FileTree(context.root))
        srp = Srp(context.root, _runner(context.root))
        with one_run(context.root, by="block logout"):
            facts = reader.facts()
            leaving = _named_sessions(self, policy.block, facts)
            devices = [lun.device for one in leaving for lun in one.luns]
            users = reader.users(devices)
            if users:
                raise BlockRefused(
                    "block-in-use",
                    f"nothing was logged out, because {count(len(users), 'user')} "
                    f"would lose LUNs: {'; '.join(map(str, users))}",
                    "put the host into maintenance, or end these",
                )
            failed = [why for one in leaving if (why := srp.log_out(one))]
        if output.for_people:
            for session in leaving:
                output.line(f"{session.title}: logged out.")
            if not leaving:
                output.line("There is no session to log out from.")
            if facts.srp_daemon:
                output.message(f"warning: {_DAEMON}")
        else:
            content = {"sessions": [session_document(one) for one in leaving]}
            output.document("block-logout", content)
        if failed:
            raise BlockProblem(failed[0].id, "\n".join(failed), "see journalctl -k")
        return 0


@dataclass(frozen=True)
class Rescan(HostVerb):
    """Look for new LUNs and sizes in all SRP sessions."""

    codes = f"0 rescanned, 1 failed, {OTHER_RUN}"
    examples = ("",)
    more = "VDSM itself rescans Fibre Channel and iSCSI only, not SRP."

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        srp = Srp(context.root, _runner(context.root))
        with one_run(context.root, by="block rescan"):
            before = _facts(context.root)
            sessions = srp_sessions(before.sessions)
            failed = srp.rescan(one for one in sessions if one.state == RUNNING)
            after = _facts(context.root)
        changes = _differences(before, after)
        if output.for_people:
            for sentence in changes:
                output.line(f"{sentence}.")
            if not changes:
                output.line(f"Nothing new in {count(len(sessions), 'session')}.")
        else:
            content = {"changes": sentences(changes), **facts_document(after)}
            output.document("block-rescan", content)
        if failed:
            raise BlockProblem(failed[0].id, "\n".join(failed), "see journalctl -k")
        return 0


VERBS: dict[str, type[Verb]] = {
    "list": List,
    "check": Check,
    "login": LogIn,
    "logout": LogOut,
    "rescan": Rescan,
}


def _add_names(parser: Parser, help: str) -> None:
    parser.add_argument("names", metavar="TARGET", nargs="*", help=help)


def _facts(root: str) -> BlockFacts:
    return BlockReader(FileTree(root)).facts()


def _runner(root: str) -> Runner:
    if root == "/":
        return run_command

    def none(argv: Sequence[str]) -> str:
        raise CommandFailed(f"not run, because {root} is not this host's root")

    return none


def _wanted(
    block: BlockPolicy, targets: Sequence[SrpTarget], facts: BlockFacts, root: str
) -> list[Union[Login, NoLogin]]:
    if not targets:
        return []
    host = HostReader(root)
    routes = [
        route
        for address in dict.fromkeys(address_of(one) for one in targets if one.dest)
        if (route := host.route(address))
    ]
    sessions = srp_sessions(facts.sessions)
    # All targets of the policy, so that each session belongs to one of them.
    named = {one.number for one in targets}
    ports = host.partitions()
    found = wanted_logins(
        block.srp, ports.rdma_devices, ports.netdevs, routes, sessions
    )
    return [one for one in found if one.target.number in named]


def _named_targets(block: BlockPolicy, names: Iterable[str]) -> tuple[SrpTarget, ...]:
    known = {one.name: one for one in block.srp}
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise UsageProblem(
                "block-target-unknown",
                f"the policy has no SRP target {name!r}; it has: {listed}",
                f"{PROGRAM} policy show",
            )
    return tuple(known[name] for name in names) if names else block.srp


def _named_sessions(
    verb: LogOut, block: BlockPolicy, facts: BlockFacts
) -> list[Session]:
    sessions = srp_sessions(facts.sessions)
    if verb.all:
        return sessions
    by_name = {one.name: one.ioc_guid for one in block.srp}
    wanted = {by_name.get(name, name.lower().removeprefix("0x")) for name in verb.names}
    unknown = wanted - {one.ioc_guid for one in sessions} - set(by_name.values())
    if unknown:
        raise UsageProblem(
            "block-session-unknown",
            f"there is no SRP session with {', '.join(sorted(map(str, unknown)))}",
            f"{PROGRAM} block list shows them",
        )
    return [one for one in sessions if one.ioc_guid in wanted]


def _findings(wanted: Iterable[Union[Login, NoLogin]]) -> list[Sentence]:
    found = []
    for one in wanted:
        if isinstance(one, NoLogin):
            found.append(one.reason.about(one.target.title))
        elif one.session is None:
            text = f"{one.title} is not logged in; {PROGRAM} block login"
            found.append(Sentence("srp-not-logged-in", text))
        else:
            found += _timeout_findings(one, one.session)
    return found


def _timeout_findings(login: Login, session: Session) -> list[Sentence]:
    return [
        Sentence(
            "srp-timeout-differs",
            f"{login.title}: {name} is {present}, the policy says {wanted}; "
            f"{PROGRAM} block login sets it",
        )
        for name, present in zip(TIMEOUTS, session.timeouts)
        if (wanted := getattr(login.target, name)) not in (None, present)
    ]


def _session_findings(facts: BlockFacts) -> list[Sentence]:
    found = []
    for session in facts.sessions:
        if session.protocol == "srp" and session.state != RUNNING:
            text = f"the session {session.title} is {session.state}"
            found.append(Sentence("srp-session-not-running", text))
        for lun in session.luns:
            if lun.map is None:
                text = (
                    f"VDSM does not offer {lun.device} ({lun.wwid}), because multipath "
                    "has no map for it"
                )
                found.append(Sentence("lun-without-map", text))
    return found


def _iser_findings(block: BlockPolicy, facts: BlockFacts) -> list[Sentence]:
    present = {(one.iqn, one.portal) for one in facts.sessions}
    return [
        Sentence("iser-not-logged-in", f"{one.title} is not logged in")
        for one in block.iser
        if (one.iqn, one.portal) not in present
    ]


def _differences(before: BlockFacts, after: BlockFacts) -> list[Sentence]:
    old, new = _by_device(before), _by_device(after)
    found = [
        Sentence("lun-new", f"{new[name].device} is new: {size(new[name])}")
        for name in sorted(new.keys() - old.keys())
    ]
    found += [
        Sentence("lun-gone", f"{name} is gone")
        for name in sorted(old.keys() - new.keys())
    ]
    found += [
        Sentence(
            "lun-resized", f"{name} had {size(old[name])}, and has {size(new[name])}"
        )
        for name in sorted(old.keys() & new.keys())
        if old[name].size != new[name].size
    ]
    return found


def _by_device(facts: BlockFacts) -> dict[str, Lun]:
    return {lun.device: lun for one in facts.sessions for lun in one.luns}
