# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``check`` and ``server check``: print the findings of all rules, the worst first,
with fixes; and ``explain``: show what a rule checks, why, what to do, and the sources,
or what a message means.

Here facts and policy are read and decided for ``plan`` too. The text of a rule is
docs/rules/ID.md, which the package installs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple, Optional

from ovirt_rdma.cli.host.arguments import HostVerb, Source, add_facts, add_policy
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import (
    AllowNone,
    Context,
    Parser,
    add_allow_none,
    verdict_code,
)
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem, UsageProblem, did_you_mean
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts, load
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import TCP, Policy, digest
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.rules import nfs_server, registry
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    PASS,
    SKIP,
    VERDICTS,
    WARN,
    Finding,
    Rule,
)
from ovirt_rdma.host.rules.registry import Decision, decide
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.storage.messages import MountFailure, known_in


@dataclass(frozen=True)
class HostDecision:
    """A decision with its facts and policy; ``source`` is where the policy is from.

    ``loaded``: a policy is loaded, or --policy names one. ``new``: --policy names
    another one than is loaded.
    """

    facts: Facts
    policy: Policy
    source: str
    loaded: bool
    new: bool
    decision: Decision


def load_decision(
    source: Source,
    context: Context,
    skip: Iterable[str] = (),
    rules: Optional[Sequence[Rule]] = None,
) -> HostDecision:
    """Decide for the host and with the policy that ``source`` names; for ``rules`` of
    a server, without one. ``skip``: ids of rules to leave out.
    """
    policy, place = Policy(), "no policy is needed"
    if rules is None:
        policy, place = policy_in_question(source.policy, context)
    if source.facts is None:
        reader = HostReader(context.root)
        facts = reader.facts(_servers(policy), exports=rules is not None)
    else:
        facts = load(source.facts)
    stored = under(context.root, POLICY_JSON)
    named, new = source.policy is not None, False
    if named:
        present = in_force(stored).stored
        new = present is None or present.digest != digest(policy)
    decision = decide(facts, policy, frozenset(skip), rules)
    loaded = named or stored.exists()
    return HostDecision(facts, policy, place, loaded, new, decision)


def rule_of(text: str) -> Rule:
    """Return the rule with this id, in upper or lower case; accept a step's id too.

    Raises UsageProblem with the nearest ids if there is none.
    """
    rule_id = text.partition("/")[0].strip()
    rules = {one.id: one for one in (*registry.RULES, *registry.SERVER_RULES)}
    if rule_id.upper() in rules:
        return rules[rule_id.upper()]
    near = did_you_mean(rule_id, rules, 3)
    raise UsageProblem(
        "rule-unknown",
        f"there is no rule {rule_id!r}",
        f"{near and near + ' '}list all ids: {PROGRAM} explain --list",
    )


def command(verb: str, source: Source, *more: str) -> str:
    """Return a command line with ``verb`` for the same host and policy."""
    argv = [PROGRAM, *verb.split(), *more]
    for option, file in (("--policy", source.policy), ("--facts", source.facts)):
        if file is not None:
            argv += [option, file]
    return " ".join(shlex.quote(word) for word in argv)


# Up to this many equal findings stay on separate lines, and so many subjects of a
# shared line are named.
APART, NAMED = 3, 8
_FOLDED = {PASS: "", SKIP: ": not for this host, or something is unknown"}


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return ``findings`` by verdict, those of one verdict in their order."""
    return sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))


def condensed(findings: Sequence[Finding]) -> list[Finding]:
    """Return what is wrong, the worst first, and a line for all that passed and one for
    all that was skipped. Pure.

    Findings that differ only in the subject share a line: a host with 32 ports may have
    32 of one rule.
    """
    groups: dict[Hashable, list[Finding]] = {}
    for one in worst_first(findings):
        texts = (text.replace(one.subject, "\0") for text in (one.sentence, one.fix))
        alike = one.verdict if one.verdict in _FOLDED else (one.rule, *texts)
        groups.setdefault((one.verdict, alike), []).append(one)
    lines = []
    for group in groups.values():
        first, subjects = group[0], [finding.subject for finding in group[1:]]
        if first.verdict in _FOLDED:
            rules = count(len({finding.rule for finding in group}), "rule")
            checks = f"{count(len(group), 'check')}{_FOLDED[first.verdict]}"
            lines.append(Finding(rules, HOST, first.verdict, f"{checks}; see --all"))
        elif len(group) > APART:
            more = len(subjects) - NAMED
            names = ", ".join(subjects[:NAMED])
            names += f" and {more} more" if more > 0 else ""
            shown = f"{first.sentence}; the same for {names}"
            lines.append(replace(first, subject=f"{len(group)} alike", sentence=shown))
        else:
            lines += group
    return lines


# Enough for the id of a rule, and for subjects that do not have two names.
_WIDEST = 16


class Check(HostVerb, Source, AllowNone):
    """Print the findings of all rules; return 3 if one is FAIL, or nothing is there."""

    codes = "0 no check failed, 3 a check failed, or there is no RDMA device"
    examples: ClassVar[tuple[str, ...]] = (
        "",
        "--all",
        "--only IPOIB-MTU-01 --only IPOIB-MODE-01",
        "--skip ROCE-PFC-01",
        "--facts hv1.json --policy new.yaml",
    )
    more = (
        "Changes nothing. FAIL is wrong, WARN may be wrong or will be, PASS is\n"
        "correct, SKIP does not apply here or is unknown. What is wrong comes first;\n"
        "equal findings share one line, and so does all that passed or was skipped."
    )

    # None: those of the registry, with a policy.
    rules: ClassVar[Optional[tuple[Rule, ...]]] = None
    kind: ClassVar[str] = "check"
    all: bool
    only: list[str]
    skip: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        cls.add_selection(parser)
        add_policy(parser)
        add_allow_none(parser, "RDMA device")
        add_facts(parser)

    @classmethod
    def add_selection(cls, parser: Parser) -> None:
        """Add --all, --only and --skip."""
        parser.add_argument(
            "--all",
            action="store_true",
            help="show every finding on its own line, also what passed or was skipped",
        )
        for name, text in (
            ("--only", "use this rule, and show all its findings"),
            ("--skip", "leave out a rule"),
        ):
            parser.add_argument(
                name,
                metavar="ID",
                action="append",
                default=[],
                help=f"{text}; may be given several times; ids: explain --list",
            )

    def run(self, context: Context) -> int:
        output = context.output
        only, skipped = (
            sorted({rule_of(text).id for text in texts})
            for texts in (self.only, self.skip)
        )
        rules = registry.RULES if self.rules is None else self.rules
        _refuse_senseless(only, skipped, rules)
        others = (rule.id for rule in rules if only and rule.id not in only)
        decided = load_decision(self, context, (*skipped, *others), self.rules)
        findings = _with_steps(decided)
        verdict, then = _verdict(decided, only, skipped), _next(decided, self)
        if output.for_people:
            show = worst_first if self.all or only else condensed
            _print(show(findings), output)
            output.text(verdict)
            output.next(then)
        else:
            output.document(
                self.kind,
                {
                    "hostname": decided.facts.hostname,
                    "policy": decided.source,
                    "only": only,
                    "skipped": skipped,
                    "counts": _counts(findings),
                    "failed": decided.decision.failed,
                    "verdict": verdict,
                    "next": then,
                    "findings": [asdict(finding) for finding in findings],
                },
            )
        return verdict_code(
            self,
            looked_at=bool(decided.facts.rdma_devices),
            failed=decided.decision.failed,
        )


class ServerCheck(Check):
    """Print the findings about the NFS server on this host; return 3 if one is FAIL,
    or there is no RDMA device.
    """

    examples = ("", "--all", "--facts nas1.json")
    more = (
        "Run it as root on a Linux NFS server. It needs no VDSM and no policy, and\n"
        "changes nothing: it looks at listeners, exports and their folders, threads,\n"
        "versions and settings, and at RDMA ports and their netdevs.\n"
        "The results are as those of check."
    )
    rules = nfs_server.ALL_RULES
    kind = "server-check"

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        cls.add_selection(parser)
        add_allow_none(parser, "RDMA device")
        add_facts(parser)
        parser.set_defaults(policy=None)


def _refuse_senseless(
    only: Sequence[str], skipped: Sequence[str], rules: Sequence[Rule]
) -> None:
    """Raise UsageProblem where nothing would be checked, and nothing found wrong, of
    what ``only`` names.
    """
    here, there = f"{PROGRAM} check", f"{PROGRAM} server check"
    if rules is not registry.RULES:
        here, there = there, here
    for one in only:
        if one not in {rule.id for rule in rules}:
            raise UsageProblem(
                "rule-of-another-verb",
                f"{one} is no rule of {here}",
                f"{there} has it",
            )
    if only and {*only} <= {*skipped}:
        raise UsageProblem(
            "options-exclude-each-other",
            f"--only and --skip both name {only[0]}",
            "omit one of them",
        )


def _with_steps(decided: HostDecision) -> list[Finding]:
    """Return the findings; those without a fix point to their step of the plan.

    If that step is refused, the fix says why.
    """
    hints = {
        (step.rule, step.subject): f"no fix by a plan: {step.refused}"
        if step.refused
        else f"{PROGRAM} plan"
        for step in decided.decision.steps
    }
    return [
        replace(finding, fix=hints.get((finding.rule, finding.subject), ""))
        if finding.verdict in (WARN, FAIL) and not finding.fix
        else finding
        for finding in decided.decision.findings
    ]


def _print(shown: Sequence[Finding], output: Output) -> None:
    if not shown:
        return
    below, last = [], None
    for one in reversed(shown):  # the last of a rule has the fix of those before it
        same = (one.rule, one.verdict, one.fix)
        bad = one.fix and one.verdict in (WARN, FAIL)
        below.append(f"fix: {one.fix}" if bad and same != last else "")
        last = same
    output.table(
        ("RESULT", "RULE", "SUBJECT", "FOUND"),
        [(f.verdict, f.rule, f.subject, f.sentence) for f in shown],
        {PASS: "good", WARN: "doubtful", FAIL: "bad"},
        below[::-1],
        widest=_WIDEST,
    )
    output.line()


def _verdict(decided: HostDecision, only: Sequence[str], skipped: Sequence[str]) -> str:
    counts = _counts(decided.decision.findings)
    host = decided.facts.hostname
    tried = sum(counts.values()) - counts[SKIP]
    checks = count(tried, "check")
    summary = f"None of {checks} failed on {host}"
    if counts[FAIL]:
        summary = f"{counts[FAIL]} of {checks} failed on {host}"
    elif not tried:
        summary = f"There is nothing to check on {host}"
    elif not decided.facts.rdma_devices:
        summary = f"{host} has no RDMA device to check; none of {checks} failed"
    elif not counts[WARN] and not decided.decision.applicable:
        summary = f"{checks} passed on {host}"
    parts = (
        summary,
        count(counts[WARN], "warning") if counts[WARN] else "",
        f"{counts[SKIP]} skipped" if counts[SKIP] else "",
        f"only {' '.join(only)}" if only else "",
        f"left out: {' '.join(skipped)}" if skipped else "",
    )
    return f"{', '.join(filter(None, parts))}."


def _next(decided: HostDecision, source: Source) -> str:
    """Return the command to run next, or nothing if there is none."""
    if decided.decision.applicable:
        return command("plan", source)
    for finding in worst_first(decided.decision.findings):
        if finding.verdict in (FAIL, WARN):
            return f"{PROGRAM} explain {finding.rule}"
    if source.facts is not None or isinstance(source, ServerCheck):
        return ""
    if decided.new and source.policy is not None:
        return f"{PROGRAM} policy load {shlex.quote(source.policy)}"
    if decided.policy.nfs.rules:
        return f"{PROGRAM} nfs list"
    has_rdma = bool(decided.facts.rdma_devices)
    return f"{PROGRAM} policy load" if has_rdma and not decided.loaded else ""


def _counts(findings: Iterable[Finding]) -> dict[str, int]:
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS}


# In a checkout, and where the package installs them.
FOLDERS = (
    Path(__file__).resolve().parents[2] / "docs/rules",
    Path("/usr/share/ovirt-rdma/rules"),
)


class RulePage(NamedTuple):
    """The page of a rule: ``what``, ``why`` and ``fix`` are paragraphs."""

    id: str
    title: str
    what: list[str]
    why: list[str]
    fix: list[str]
    sources: list[str]


def read_page(rule: str) -> RulePage:
    """Return the page of the rule with this id. Raises Problem if it is missing."""
    folder = next((each for each in FOLDERS if each.is_dir()), FOLDERS[-1])
    path = folder / f"{rule}.md"
    try:
        text = read_file(path).decode()
        heading, *parts = re.sub(r"\\([<*`|])", r"\1", text).split("\n## ")
        _, _, title = heading.partition(f"# {rule}: ")
        what, why, fix, sources = (part.strip().split("\n\n")[1:] for part in parts)
    except (OSError, ValueError) as error:
        raise Problem(
            "rule-text-unreadable",
            f"the text of {rule}, {path}, cannot be read: {error}",
            "install the package ovirt-rdma-host again",
        ) from error
    listed = "\n".join(sources).removeprefix("- ").split("\n- ")
    return RulePage(rule, title.strip(), what, why, fix, listed)


def _servers(policy: Policy) -> tuple[str, ...]:
    """Return the addresses of servers that the policy's NFS rules over RDMA name."""
    named = (rule.server for rule in policy.nfs.rules if rule.transport != TCP)
    return tuple(dict.fromkeys(s for s in named if Export(s, "/").address))


def _messages(output: Output, known: Sequence[MountFailure]) -> int:
    """Print what messages mean."""
    if not output.for_people:
        rows = [{"text": o.text, "meaning": o.meaning, "fix": o.fix} for o in known]
        output.document("messages", {"messages": rows})
        return 0
    for number, one in enumerate(known):
        if number:
            output.line()
        output.line(one.text)
        output.text(one.meaning, "  ")
        output.text(f"fix: {one.fix}", "  ")
        if one.rdma_fix:
            output.text(f"over RDMA: {one.rdma_fix}", "  ")
    return 0


class Explain(HostVerb):
    """Explain one rule, or a message of mount.nfs or the kernel's log; or list all
    rules.
    """

    codes = "0 printed"
    examples = ("IPOIB-MTU-01", "'Recv: local length error'", "--list")

    id: Optional[str]
    list: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "id",
            metavar="ID",
            nargs="?",
            help="the id of a rule or a step, or a message, in quotes",
        )
        parser.add_argument(
            "--list", action="store_true", help="list all ids with their titles"
        )

    def run(self, context: Context) -> int:
        if (self.id is None) != self.list:
            raise UsageProblem(
                "options-exclude-each-other",
                "give either the id of a rule or --list",
                f"list the ids: {PROGRAM} explain --list",
            )
        output = context.output
        if self.id is None:
            rules = (*registry.RULES, *registry.SERVER_RULES)
            titles = [(rule.id, read_page(rule.id).title) for rule in rules]
            if output.for_people:
                output.table(("ID", "TITLE"), titles)
            else:
                listed = [{"id": rule, "title": title} for rule, title in titles]
                output.document("rules", {"rules": listed})
            return 0
        try:
            page = read_page(rule_of(self.id).id)
        except UsageProblem:
            known = known_in(self.id)
            if not known:
                raise
            return _messages(output, known)
        texts = {"what": page.what, "why": page.why, "fix": page.fix}
        if not output.for_people:
            joined = {name: "\n\n".join(text) for name, text in texts.items()}
            output.document("rule", {**page._asdict(), **joined})
            return 0
        output.text(f"{page.id}: {page.title}")
        for name, paragraphs in texts.items():
            output.line()
            output.line(name)
            for number, paragraph in enumerate(paragraphs):
                if number:
                    output.line()
                output.text(paragraph, "  ")
        output.line()
        output.line("sources")
        for source in page.sources:
            output.text(source, "  ", "- ")
        return 0
