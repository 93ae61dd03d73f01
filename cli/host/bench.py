# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bench``: measure RDMA against TCP, and say what the limit is."""

from __future__ import annotations

from functools import partial
from typing import Optional

from ovirt_rdma.cli.host.arguments import HostVerb, add_policy, export_of
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, Parser, number
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import NOTHING_CHANGED, ExitCode
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import PREFER_RDMA, NfsRule, rule_for
from ovirt_rdma.host.system.commands import run_command
from ovirt_rdma.storage.benchmark.measure import (
    LOADS,
    MIB,
    Measuring,
    Request,
    engine,
    read_counters,
)
from ovirt_rdma.storage.benchmark.model import Benchmark, Row, as_document
from ovirt_rdma.storage.benchmark.scratch import Scratch, identity
from ovirt_rdma.storage.benchmark.verdict import Verdict, mb, verdict
from ovirt_rdma.storage.readiness import ProbeContext, ServerReadiness

_VERSIONS = ("3", "4.0", "4.1", "4.2")


class Bench(HostVerb):
    """Measure an export over RDMA and TCP."""

    codes = (
        "0 measured, 1 failed, 4 refused: the export is a storage domain or is almost "
        "full, 75 another benchmark is running"
    )
    examples = (
        "nas1:/export/scratch",
        "nas1:/export/scratch --nfs-version 3 --nconnect 4 -o json > new.json",
        "nas1:/export/scratch --dry-run",
    )
    more = (
        "Mounts the export below /run, over RDMA and TCP in turns, and runs fio in a\n"
        "scratch folder; both are removed at the end. No other mount is touched, but\n"
        "the server is under load."
    )

    export: Export
    nfs_version: str
    nconnect: int
    repeats: int
    seconds: int
    size_mib: int
    policy: Optional[str]
    yes_write: bool
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "export",
            metavar="SERVER:/PATH",
            type=export_of,
            help="the export to measure",
        )
        parser.add_argument(
            "--nfs-version",
            choices=_VERSIONS,
            default="4.2",
            help="of the mounts; default: 4.2",
        )
        for name, most, default, text in (
            ("--nconnect", 16, 1, "the connections of each mount"),
            ("--repeats", 9, 3, "how often each mount is measured"),
            ("--seconds", 60, 3, "for each run of fio"),
            ("--size-mib", 65536, 256, "the size of fio's file"),
        ):
            parser.add_argument(
                name,
                metavar="N",
                type=number(1, most),
                default=default,
                help=f"{text}, 1 to {most}; default: {default}",
            )
        parser.add_argument(
            "--yes-write",
            action="store_true",
            help="measure a storage domain too, although virtual machines use it",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="show what would be measured, and how long it takes",
        )
        add_policy(parser)

    def run(self, context: Context) -> int:
        output = context.output
        request = Request(
            self.nfs_version,
            self.nconnect,
            self.repeats,
            self.seconds,
            self.size_mib * MIB,
        )
        if self.dry_run:
            _show_plan(output, request)
            return ExitCode.DONE
        made = self._measured(context, request)
        output.progress("")
        found = verdict(made)
        if output.for_people:
            _show(output, made, found)
        else:
            output.raw_document(as_document(made, found))
        return ExitCode.DONE

    def _measured(self, context: Context, request: Request) -> Benchmark:
        fio = engine(run_command)
        context.output.progress("reading the host and asking the server")
        policy, _ = policy_in_question(self.policy, context)
        match = rule_for(policy, self.export)
        server = self.export.server
        rule = match.rule if match else NfsRule(0, "none", server, "*", PREFER_RDMA)
        reader = HostReader(context.root)
        asked = ServerReadiness(server, rule, ProbeContext(reader))
        readiness, first = asked.readiness(), asked.rdma_address
        addresses = sorted(asked.addresses, key=lambda address: address != first)
        measuring = Measuring(
            self.export,
            rule,
            addresses,
            readiness,
            reader.facts(addresses[:1]),
            fio,
            Scratch(context.root, identity=identity(context.root)),
            reader.nfs_mounts,
            partial(read_counters, context.root),
            context.output.progress,
        )
        return measuring.run(request, yes_write=self.yes_write)


def _show_plan(output: Output, request: Request) -> None:
    seconds, turns = round(request.duration_s()), request.turns()
    if output.for_people:
        output.table(
            ("REPEAT", "MOUNT"), [(str(repeat), str(one)) for repeat, one in turns]
        )
        output.line("In each mount:")
        for load in LOADS:
            output.line(f"  {load}, {request.seconds} s")
        output.line(f"About {max(1, round(seconds / 60))} min. {NOTHING_CHANGED}")
        return
    loads = [str(load) for load in LOADS]
    mounts = [{**vars(one), "repeat": repeat, "loads": loads} for repeat, one in turns]
    output.document("benchmark-plan", {"seconds": seconds, "mounts": mounts})


def _show(output: Output, made: Benchmark, found: Verdict) -> None:
    headings = ("MOUNT", "LOAD", "CONN", "RATE", "SPREAD", "IOPS", "P99.9", "CPU")
    minor = ("MOUNT", "CONN", "SPREAD")
    output.table(headings, [_cells(row) for row in made.rows], minor=minor)
    output.line()
    for sentence in made.skipped:
        output.line(f"note: {sentence}")
    output.text(f"{found.sentence[0].upper()}{found.sentence[1:]}.")
    pairs = [("compared", f"NFS {found.version}")] if found.ratios else []
    for ratio in found.ratios:
        sure = "" if ratio.certain else ", within the spread"
        pairs.append((ratio.load, f"RDMA {ratio.value:.2f} times TCP{sure}"))
    if found.link_limit_mbps:
        carried = mb(found.link_limit_mbps * 1e6 / 8)
        pairs.append(("port", f"carries {carried} as payload"))
    named = [("limit", one) for one in found.limits]
    named += [("limit of RDMA", one) for one in found.rdma_limits]
    for title, limit in named:
        loads = ", ".join(limit.loads)
        pairs.append((title, f"{limit.kind} ({loads}): {limit.sentence}"))
        pairs.append(("evidence", limit.evidence))
        if limit.fix:
            pairs.append(("fix", limit.fix))
    output.fields(pairs)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.setting),
        str(row.load),
        str(row.connections),
        mb(row.rate.middle),
        f"{row.rate.relative:.0%}",
        f"{row.operations.middle:.0f}",
        f"{row.p99_9_us / 1000:.2f} ms",
        f"{row.cpu.middle:.2f} s/GB" if row.cpu else "unknown",
    )
