# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the verbs about the NFS mounts of this host: ``nfs list``, ``nfs health``, and
``watch``.

``list`` shows each mount with its transport and the verdict of its rule, and since when
and why it is degraded. ``health`` asks the server of each mount, by a process of its
own that may hang in the kernel without harm, and names what is wrong. ``watch`` shows
what the mounts do, until it is ended.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.command import Ended
from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import (
    HostVerb,
    Source,
    add_facts,
    add_policy,
    export_of,
    refuse_facts,
)
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.host.shown.health import print_health
from ovirt_rdma.cli.host.shown.watch import WATCH_KIND, document, print_rows, rows
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.cli.verdict import AllowNone, add_allow_none, verdict_code
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.mounts import MOUNTINFO
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.dump import load
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.health.state import (
    OK as HEALTH_OK,
)
from ovirt_rdma.storage.health.state import (
    HealthState,
    read_state,
    seconds_after_boot,
)
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OK,
    UNPROVEN,
    MountReview,
    review_all,
)


class ListMounts(HostVerb, Source, AllowNone):
    """List all NFS mounts; return 3 with --exit-code if one is not as its rule
    says.
    """

    codes = (
        "0 listed; with --exit-code 3 if a mount is not as its rule says,\n"
        "or there is none"
    )
    examples = ("", "--exit-code", "-v --facts hv1.json")

    exit_code: bool
    verbose: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)
        parser.add_argument(
            "--exit-code",
            action="store_true",
            help="exit with 3 if a mount is degraded, unproven or not covered",
        )
        add_allow_none(parser, "NFS mount")
        parser.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="also show each mount's proof, connections and request sizes",
        )
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        policy, source = policy_in_question(self.policy, context)
        facts = mount_facts(self.facts, context.root)
        reviews = review_all(facts, policy)
        others = _tones().keys() - {OK}
        wrong = [review for review in reviews if review.verdict in others]
        if output.for_people:
            # Otherwise a host that could not be read would look like one without.
            for sentence in facts.problems:
                output.message(f"note: {sentence}")
            _print_list(reviews, source, output)
            if not reviews and any(MOUNTINFO in one for one in facts.problems):
                output.line("The NFS mounts of this host are not known.")
            else:
                _print_verdict(reviews, wrong, source, output)
            if self.verbose:
                for review in reviews:
                    _print_proof(review, output)
        else:
            output.document(
                "nfs-mounts",
                {
                    "policy": source,
                    "mounts": [_list_document(review) for review in reviews],
                    "problems": list(facts.problems),
                },
            )
        if not self.exit_code:
            return ExitCode.DONE
        return verdict_code(self, looked_at=bool(reviews), failed=bool(wrong))


# The mount options whose result is shown, and their names there.
_NEGOTIATED = (("nconnect", "connections"), ("rsize", "rsize"), ("wsize", "wsize"))


def _tones() -> dict[str, str]:
    return {OK: "good", DEGRADED: "bad", UNPROVEN: "doubtful", NOT_COVERED: "bad"}


def mount_facts(file: Optional[str], root: str) -> Facts:
    """Return the facts about mounts, of the host or of a facts file."""
    if file is None:
        return HostReader(root).mount_facts()

    return load(file)


def _print_list(reviews: list[MountReview], source: str, output: Output) -> None:
    if reviews:
        output.table(
            ("EXPORT", "TRANSPORT", "NFS", "RULE", "VERDICT", "SINCE (UTC)"),
            [
                (
                    review.mount.source,
                    review.proof.transport or "unproven",
                    review.mount.version or "-",
                    review.match.rule.name if review.match else "-",
                    review.verdict,
                    _minute(review.since),
                )
                for review in reviews
            ],
            _tones(),
        )


def _print_verdict(
    reviews: list[MountReview], wrong: list[MountReview], source: str, output: Output
) -> None:
    named = sum(1 for review in reviews if review.match)
    mounts = "The mount" if named == 1 else f"All {named} mounts"
    if not reviews:
        output.line("This host has no NFS mount.")
    elif not named:
        these = "this mount" if len(reviews) == 1 else "any of these mounts"
        output.line(f"No rule names {these} ({source}).")
    elif not wrong:
        verb = "is" if named == 1 else "are"
        output.line(f"{mounts} named by a rule {verb} as the rule says ({source}).")
    else:
        verb = "is" if len(wrong) == 1 else "are"
        output.line(
            f"{len(wrong)} of {count(named, 'mount')} named by a rule {verb} not as "
            f"the rule says ({source})."
        )
    for review in wrong:
        output.line(f"{review.sentence}.")
        output.fix(review.fix)


def _minute(since: Optional[str]) -> str:
    return since[: len("2026-11-21T02:51")].replace("T", " ") if since else "-"


def _print_proof(review: MountReview, output: Output) -> None:
    output.line()
    output.line(review.mount.source)
    seen = [(signal.source, signal.shown) for signal in review.proof.signals]
    output.fields(
        [
            ("mounted at", review.mount.mountpoint),
            *(seen or [("proof", "no signal")]),
            *((name, str(review.negotiated(key))) for key, name in _NEGOTIATED),
        ],
        indent="  ",
    )


def _list_document(review: MountReview) -> dict[str, Any]:
    return {
        "export": review.mount.source,
        "mountpoint": review.mount.mountpoint,
        "version": review.mount.version,
        "transport": review.proof.transport,
        "rule": review.match.rule.name if review.match else None,
        "verdict": review.verdict,
        "since": review.since,
        "reason": review.reason,
        "sentence": review.sentence,
        "fix": review.fix,
        "signals": [asdict(signal) for signal in review.proof.signals],
        **{name: asdict(review.negotiated(key)) for key, name in _NEGOTIATED},
    }


_HEALTH_KIND = "nfs-health"


class CheckHealth(HostVerb, AllowNone):
    """Ask each mount's server; return 0 if all are ok, else 3."""

    codes = (
        "0 every mount is ok, 3 one is slow, stalled, dead or unknown,\n"
        "or there is none"
    )
    examples = ("", "nas1:/export/vm", "-o json")
    more = (
        "Looks up a name that cannot exist on each mount, which no cache answers,\n"
        "and reads 4 KiB of each storage domain without the page cache. An answer\n"
        "is waited for 2 s. If one is late, the server is asked for TCP and RDMA\n"
        "connections, to name the cause: server, path, slots, fabric or host."
    )

    export: Optional[Export]
    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "export",
            metavar="SERVER:/PATH",
            type=export_of,
            nargs="?",
            help="only this export",
        )
        add_policy(parser)
        add_allow_none(parser, "NFS mount")
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        policy, _ = policy_in_question(self.policy, context)
        exports = (self.export,) if self.export else ()
        look = looker(context.root).look(policy, exports, read=True)
        if self.export and not look.mounts:
            raise Problem(
                "export-not-mounted",
                f"{self.export} is not mounted on this host",
                "ovirt-rdma-host nfs list shows what is",
            )
        state = HealthState(
            _now(), seconds_after_boot(), 0.0, look.mounts, look.problems
        )
        if output.for_people:
            for sentence in state.problems:
                output.message(f"note: {sentence}")
            print_health(state.mounts, output)
        else:
            output.document(_HEALTH_KIND, {"worst": state.worst, **plain(state)})
        return verdict_code(
            self, looked_at=bool(look.mounts), failed=state.worst != HEALTH_OK
        )


def looker(root: str) -> Looker:
    """Return what looks at the mounts; tests replace it."""
    return Looker(root)


def _now() -> float:
    return time.time()


class Watch(HostVerb):
    """Show what each mount does, once per interval; return 0 at the end."""

    codes = "0 after --count samples, or Ctrl-C"
    examples = ("", "--interval 5", "-o json --count 10")
    more = (
        "Shows throughput, round-trip and execution times, connections made, calls\n"
        "sent again, and calls that wait for a slot. Reads the kernel's statistics\n"
        "only, so a mount that hangs is shown too. HEALTH is from\n"
        "the daemon; '-' if it is not running. With -o json there is\n"
        "one line per sample."
    )

    interval: float
    count: Optional[int]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--interval",
            metavar="SECONDS",
            type=_seconds,
            default=1.0,
            help="between two samples, 0.1 to 3600; default: 1",
        )
        parser.add_argument(
            "--count", metavar="N", type=_samples, help="end after N samples"
        )
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        try:
            self._watch(context)
        except Ended:
            raise
        except KeyboardInterrupt:  # the way to end it
            pass
        return ExitCode.DONE

    def _watch(self, context: Context) -> None:
        output, tree = context.output, FileTree(context.root)
        # Ports are not shown, and each of their counters is asked of the firmware.
        before, shown = read_statistics(tree, ports=False), 0
        while output.is_read and shown != self.count:
            time.sleep(self.interval)
            after = read_statistics(tree, ports=False)
            found = rows(before, after, read_state(context.root))
            if output.for_people:
                output.begin_screen()
                print_rows(found, after.problems, output)
                output.show_screen()
            else:
                content = document(found, time.time(), after.problems)
                output.one_of_many(WATCH_KIND, content)
            before, shown = after, shown + 1


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not 0.1 to 3600 seconds")
    return value


def _samples(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text[:9]) >= 1:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 1")
    return int(text[:9])
