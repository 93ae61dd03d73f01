# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bench``: measure RDMA against TCP, and say what the limit is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from ovirt_rdma.cli.host.arguments import (
    HostVerb,
    add_policy,
    export_of,
    refuse_facts,
)
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, Parser, file_name, number
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import NOTHING_CHANGED, UsageProblem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import PREFER_RDMA, NfsRule, rule_for
from ovirt_rdma.host.server_kinds import AUTO, kind_of
from ovirt_rdma.host.system.commands import run_command
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.benchmark import scratch
from ovirt_rdma.storage.benchmark.limits import mb
from ovirt_rdma.storage.benchmark.measure import (
    DEFAULT_SLOTS,
    MIB,
    Measuring,
    Request,
    Server,
    Turn,
    duration_s,
    read_counters,
    result,
    turns,
)
from ovirt_rdma.storage.benchmark.model import (
    Benchmark,
    Comparison,
    Job,
    Row,
    Rows,
    as_document,
    compared,
    load,
)
from ovirt_rdma.storage.benchmark.scratch import Scratch, identity
from ovirt_rdma.storage.benchmark.verdict import Verdict, verdict
from ovirt_rdma.storage.readiness import (
    RESOLVE_TIMEOUT_S,
    ProbeContext,
    ServerReadiness,
)

_VERSIONS = ("3", "4.0", "4.1", "4.2")


class Bench(HostVerb):
    """Measure an export, the link to another host, or both."""

    codes = (
        "0 measured, 1 failed, 4 refused: the export is a storage domain or is almost "
        "full, 75 another benchmark is running"
    )
    examples = (
        "nas1:/export/scratch",
        "nas1:/export/scratch --nfs-version 3,4.2 --nconnect 1,4 -o json > new.json",
        "nas1:/export/scratch --compare old.json",
        "--peer hv2",
        "nas1:/export/scratch --dry-run",
    )
    more = (
        "Mounts the export below /run, over RDMA and TCP in turns, and runs fio in a\n"
        "scratch folder; both are removed at the end. No other mount is touched, but\n"
        "the server is under load. With --peer, ib_read_bw, ib_write_bw and iperf3\n"
        "measure the link, as far as they are installed; start their servers on the\n"
        "other host first."
    )

    export: Optional[Export]
    peer: Optional[str]
    nfs_version: tuple[str, ...]
    nconnect: tuple[int, ...]
    repeats: int
    seconds: int
    size_mib: int
    compare: Optional[str]
    policy: Optional[str]
    yes_write: bool
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "export",
            metavar="SERVER:/PATH",
            nargs="?",
            type=export_of,
            help="the export to measure",
        )
        parser.add_argument(
            "--peer",
            metavar="HOST",
            type=_host,
            help="measure the link to this host too, or only",
        )
        parser.add_argument(
            "--nfs-version",
            metavar="LIST",
            type=_versions,
            default="4.2",
            help="NFS versions, such as 3,4.2; default: 4.2",
        )
        parser.add_argument(
            "--nconnect",
            metavar="LIST",
            type=_connections,
            default="1",
            help="numbers of connections, such as 1,4; default: 1",
        )
        for name, most, default, text in (
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
            "--compare",
            metavar="FILE",
            type=file_name,
            help="compare with an earlier result, from 'bench -o json'",
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
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        if self.export is None and self.peer is None:
            raise UsageProblem(
                "bench-nothing-named",
                "an export or --peer is missing",
                "name what to measure, as in bench nas1:/export/scratch",
            )
        old = load(self.compare) if self.compare else None
        request = self._request()
        if self.dry_run:
            _show_plan(context.output, request, turns(request, DEFAULT_SLOTS))
            return ExitCode.DONE
        made = self._measured(context, request)
        context.output.progress("")
        found = verdict(made)
        comparison = compared(old, made) if old else None
        if context.output.for_people:
            _show(context.output, made, found, comparison)
        else:
            context.output.raw_document(as_document(made, found, comparison))
        return ExitCode.DONE

    def _request(self) -> Request:
        return Request(
            versions=self.nfs_version,
            nconnect=self.nconnect,
            repeats=self.repeats,
            seconds=self.seconds,
            size=self.size_mib * MIB,
        )

    def _measured(self, context: Context, request: Request) -> Benchmark:
        fio = scratch.engine(run_command) if self.export else None
        context.output.progress("reading the host and asking the server")
        server = self._server(context) if self.export else None
        measuring = self._measuring(context, server)
        link = measuring.link(self.peer) if self.peer else ()
        jobs: tuple[Job, ...] = ()
        if server and fio:
            jobs = measuring.mounts(server, request, fio, yes_write=self.yes_write)
        if not self.peer:
            measuring.skipped.append("the link was not measured: there is no --peer")
        made = result(measuring, self.export, fio, link, jobs)
        named = server.rule.server_kind if server else AUTO
        said = (
            mount.server_program
            for mount in measuring.facts.nfs_mounts
            if server and mount.address in server.addresses
        )
        kind = kind_of(named, next(filter(None, said), None))
        return replace(made, server_kind=kind.name if kind else None)

    def _server(self, context: Context) -> Server:
        export = self.export
        if export is None:
            raise ValueError("there is no export")
        policy, _ = policy_in_question(self.policy, context)
        match = rule_for(policy, export)
        rule = (
            match.rule if match else NfsRule(0, "none", export.server, "*", PREFER_RDMA)
        )
        asked = ServerReadiness(
            export.server, rule, ProbeContext(HostReader(context.root), probe)
        )
        readiness, first = asked.readiness(), asked.rdma_address
        others = [one for one in asked.addresses if one != first]
        addresses = (*([first] if first else []), *others)
        return Server(export, rule, addresses, readiness)

    def _measuring(self, context: Context, server: Optional[Server]) -> Measuring:
        peers = probe.resolve(self.peer, RESOLVE_TIMEOUT_S) if self.peer else ()
        known = server.addresses if server else peers
        address = known[0] if known else None
        root = context.root
        reader = HostReader(root)
        return Measuring(
            reader.facts(tuple(dict.fromkeys((*known[:1], *peers[:1])))),
            address,
            Scratch(root, identity=identity(root)),
            reader.nfs_mounts,
            partial(read_counters, root),
            context.output.progress,
            peer_address=peers[0] if peers else None,
        )


def _host(text: str) -> str:
    # It is an argument of tools: none may take it for an option.
    if not text or text.startswith("-") or any(c.isspace() or c == "/" for c in text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a host")
    return text


def _versions(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(text.split(",")))
    for word in words:
        if word not in _VERSIONS:
            known = ", ".join(_VERSIONS)
            raise argparse.ArgumentTypeError(f"{word!r} is none of {known}")
    return words


def _connections(text: str) -> tuple[int, ...]:
    read = number(1, 16)
    return tuple(sorted({read(word) for word in text.split(",")}))


def _show_plan(output: Output, request: Request, planned: Sequence[Turn]) -> None:
    seconds = round(duration_s(request, planned))
    if not output.for_people:
        output.document(
            "benchmark-plan",
            {
                "seconds": seconds,
                "mounts": [
                    {
                        "transport": turn.setting.transport,
                        "version": turn.setting.version,
                        "nconnect": turn.setting.nconnect,
                        "repeat": turn.repeat,
                        "loads": [str(load) for load in turn.loads],
                    }
                    for turn in planned
                ],
            },
        )
        return
    output.table(
        ("REPEAT", "MOUNT"),
        [(str(turn.repeat), str(turn.setting)) for turn in planned],
    )
    output.line("In each mount:")
    for one in planned[0].loads:
        output.line(f"  {one}, {request.seconds} s")
    output.line(f"About {max(1, round(seconds / 60))} min. {NOTHING_CHANGED}")


def _show(
    output: Output,
    made: Benchmark,
    found: Verdict,
    comparison: Optional[Comparison],
) -> None:
    if made.link:
        output.table(
            ("TOOL", "TEST", "TRANSPORT", "RATE"),
            [
                (one.tool, one.test, one.transport, mb(one.bytes_per_s))
                for one in made.link
            ],
        )
        output.line()
    rows = Rows.of(made).rows
    if rows:
        headings = ("MOUNT", "LOAD", "CONN", "RATE", "SPREAD", "IOPS", "P99.9", "CPU")
        output.table(
            headings, [_cells(row) for row in rows], minor=("MOUNT", "CONN", "SPREAD")
        )
        output.line()
    for sentence in made.skipped:
        output.line(f"note: {sentence}")
    if comparison:
        _show_changes(output, comparison)
    output.text(f"{found.sentence[0].upper()}{found.sentence[1:]}.")
    _show_verdict(output, found)


def _cells(row: Row) -> tuple[str, ...]:
    cpu = f"{row.cpu.middle:.2f} s/GB" if row.cpu else "unknown"
    return (
        str(row.setting),
        str(row.load),
        str(row.connections),
        mb(row.rate.middle),
        f"{row.rate.relative:.0%}",
        f"{row.operations.middle:.0f}",
        f"{row.p99_9_us / 1000:.2f} ms",
        cpu,
    )


def _show_verdict(output: Output, found: Verdict) -> None:
    pairs = []
    for ratio in found.ratios:
        sure = "" if ratio.certain else ", within the spread"
        value = f"RDMA {ratio.value:.2f} times TCP{sure}"
        pairs.append((ratio.load, value))
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
    if found.options:
        pairs.append(("recommended", f"NFS {found.version}, {found.options}"))
    pairs += [("because", reason) for reason in found.reasons]
    output.fields(pairs)


def _show_changes(output: Output, comparison: Comparison) -> None:
    taken_at = comparison.taken_at
    for sentence in comparison.differences:
        output.line(f"note: compared with {taken_at}, {sentence}")
    rows = [
        (
            str(one.setting),
            str(one.load),
            mb(one.before.middle),
            mb(one.now.middle),
            f"{one.ratio:.2f}" + ("" if one.certain else " (within the spread)"),
        )
        for one in comparison.changes
    ]
    if rows:
        headings = ("MOUNT", "LOAD", "BEFORE", "NOW", "RATIO")
        output.table(headings, rows, minor=("MOUNT",))
    else:
        output.line(f"note: nothing is comparable with the result of {taken_at}")
    output.line()
