# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``report``: all that is known of hosts, domains and fabric, on one page."""

from __future__ import annotations

import os
import stat
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    EngineVerb,
    add_data_center,
    add_host_access,
    add_policy,
)
from ovirt_rdma.cli.engine.session import (
    access_of,
    ask_hosts,
    matrix_document,
    note_no_access,
    open_session,
    own_policy,
)
from ovirt_rdma.cli.parser import Context, Parser, file_name
from ovirt_rdma.engine_sdk_tools.domains.transport import domains_to_verify
from ovirt_rdma.engine_sdk_tools.model import hosts_named
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.engine_sdk_tools.report.model import (
    Report,
    report_of,
    row_of,
    verdict_text,
)
from ovirt_rdma.engine_sdk_tools.report.page import html_of, portal_file
from ovirt_rdma.host import __version__
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.storage.benchmark.model import load


class MakeReport(EngineVerb, AccessOptions):
    """Write a page of HTML, complete in one file, or print the same as JSON."""

    codes = "0 made, whatever it says, 1 not made"
    examples = (
        "fabric.html",
        "fabric.html --replace --policy policy.yaml",
        "fabric.html --bench hv1.json --bench hv2.json",
        "-o json --facts-dir dumps",
        "--portal report.json",
    )
    more = (
        "Shows the fabric as a picture, checks of hosts, the transport of each\n"
        "domain on each host, benchmarks and plans. Changes nothing.\n"
        "docs/report.md describes the page and the document."
    )

    file: Optional[str]
    replace: bool
    policy: Optional[str]
    bench: list[str]
    portal: Optional[str]
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            type=file_name,
            help="the page to write; its name ends in .html; may be omitted with "
            "-o json or yaml",
        )
        parser.add_argument(
            "--replace", action="store_true", help="replace FILE if it exists"
        )
        add_policy(parser)
        parser.add_argument(
            "--bench",
            metavar="FILE",
            action="append",
            default=[],
            type=file_name,
            help="show this result of 'ovirt-rdma-host bench -o json'; may be given "
            "several times",
        )
        parser.add_argument(
            "--portal",
            metavar="FILE",
            type=file_name,
            help="write or replace the data of the administration portal's plugin",
        )
        add_data_center(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        umask = os.umask(0o077)
        os.umask(umask)
        files = []
        if self.file is not None:
            mode = 0o666 & ~umask
            files.append((Path(self.file), ".html", html_of, mode, self.replace))
        if self.portal is not None:
            # Only root's, whatever umask it has: others get their part of it.
            files.append((Path(self.portal), ".json", portal_file, 0o600, True))
        if not files and output.for_people:
            raise UsageProblem(
                "report-without-file",
                "the file of the page is missing",
                "name a file that ends in .html, or print a document with -o json",
            )
        for path, suffix, _, _, replace in files:
            _refuse(path, suffix, replace=replace)
        report = self._report(context)
        written = []
        for path, _, make, mode, replace in files:
            data = make(report)
            try:
                write_atomically(path, data, mode, replace=replace)
            except FileExistsError as error:
                raise _exists(path) from error
            except OSError as error:
                raise _not_written(path, error.strerror or str(error)) from error
            written.append(f"{path} is written: {len(data)} bytes.")
        if not output.for_people:
            output.document("report", _document(report))
            return 0
        for note in report.notes:
            output.message(f"note: {note}")
        output.text(verdict_text(report))
        for line in written:
            output.line(line)
        return 0

    def _report(self, context: Context) -> Report:
        output = context.output
        policy = own_policy(self.policy)
        wanted = policy[0].policy if policy else None
        results = [load(file) for file in self.bench]
        notes = []
        with open_session(self, output) as session:
            engine = read_engine(session, hooks=True)
            hosts = hosts_named(engine, (), self.datacenter)
            domains = domains_to_verify(engine, (), self.datacenter)
        access = access_of(self, context)
        note_no_access(access, output)
        if access is None:
            notes.append("The hosts were not asked: there was no access to them.")
        rows = [
            row_of(engine, host, report, wanted, domains)
            for host, report in ask_hosts(hosts, access, output)
        ]
        return report_of(
            engine,
            rows,
            wanted,
            domains,
            made_at=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
            version=__version__,
            results=results,
            notes=tuple(notes),
            policy_file=str(policy[1]) if policy else None,
        )


def _refuse(path: Path, suffix: str, *, replace: bool) -> None:
    """Raise Problem if ``path`` cannot be written, before the hosts are asked."""
    if path.suffix != suffix:
        raise UsageProblem(
            "report-name",
            f"{str(path)!r} does not end in {suffix}",
            f"name the file, for example fabric{suffix}",
        )
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        kind = 0
    except OSError as error:
        raise _not_written(path, error.strerror or str(error)) from None
    if kind not in (0, stat.S_IFREG):
        raise Problem(
            "report-no-plain-file", f"{path} is no plain file", "name another file"
        )
    if kind and not replace:
        raise _exists(path)
    if not path.parent.is_dir():
        raise _not_written(path, "there is no such folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _not_written(path, "the folder cannot be written")


def _exists(path: Path) -> Problem:
    return Problem(
        "report-exists", f"{path} exists", "name another file, or add --replace"
    )


def _not_written(path: Path, why: str) -> Problem:
    return Problem(
        "report-not-written",
        f"{path} cannot be written: {why}",
        "name a file in a folder that you can write to, with space for it",
    )


def _document(report: Report) -> dict[str, Any]:
    document: dict[str, Any] = plain(report)
    for name, matrix in (("checks", report.checks), ("transports", report.transports)):
        document[name] = matrix_document(matrix)
    for domain in document["domains"]:
        domain["used"] = dict(domain["used"])
    for host in document["hosts"]:
        for path in host["paths"] or ():
            path["transports"] = dict(path["transports"])
    return document
