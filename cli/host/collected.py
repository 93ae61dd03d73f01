# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bundle`` and ``metrics``: collect what support and monitoring need."""

from __future__ import annotations

from ovirt_rdma.cli.host.arguments import HostVerb, refuse_facts
from ovirt_rdma.cli.output import count
from ovirt_rdma.cli.parser import Parser, file_name
from ovirt_rdma.host.errors import UsageProblem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.storage.metrics.samples import Row


class Bundle(HostVerb):
    """Write the bundle; what is missing in it is a note."""

    codes = "0 written, also if parts are missing, 1 not written"
    examples = ("hv1.tar.xz",)
    more = (
        "It has facts, status, findings, plan, history, policy, mounts, the\n"
        "journal of our units and our lines of vdsm.log; no keys or passwords.\n"
        "What could not be read is in its notes.txt. A plugin of sos collects\n"
        "the same: sos report -o ovirt_rdma."
    )

    file: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "file",
            metavar="FILE",
            type=file_name,
            help="the file to write; its name ends in .tar.xz, and it must not exist",
        )
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        from pathlib import Path

        from ovirt_rdma.host.services import support_bundle

        output = context.output
        path = Path(self.file)
        if not path.name.endswith(support_bundle.SUFFIX):
            raise UsageProblem(
                "bundle-name",
                f"{self.file!r} does not end in {support_bundle.SUFFIX}",
                f"name the file, for example hv1{support_bundle.SUFFIX}",
            )
        if path.exists() or path.is_symlink():
            raise support_bundle.exists(path)
        output.progress("reading the host")
        made = support_bundle.collect(context.root)
        size = support_bundle.write(made, path, context.root)
        if not output.for_people:
            output.document(
                "bundle",
                {
                    "file": str(path),
                    "bytes": size,
                    "parts": sorted(made.parts),
                    "notes": made.notes,
                },
            )
            return 0
        for note in made.notes:
            output.message(f"note: {note}")
        output.line(
            f"{path} is written: {count(len(made.parts), 'part')}, {size} bytes."
        )
        return 0


class ShowMetrics(HostVerb):
    """Print the metrics, or write them into a folder."""

    codes = "0 printed or written, also if parts are missing, 1 not written"
    examples = ("", "--write /var/lib/node_exporter/textfile_collector")
    more = (
        "They are in the text format of Prometheus. With metrics_folder in the\n"
        "policy, ovirt-rdma-metrics.timer writes them every 15 seconds."
    )

    write: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--write",
            metavar="FOLDER",
            type=file_name,
            help="write ovirt_rdma.prom into this folder, as a whole",
        )
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.storage.metrics.exporter import (
            FILE,
            read_metrics,
            write_metrics,
        )
        from ovirt_rdma.storage.metrics.render import render

        output = context.output
        metrics = read_metrics(context.root)
        text = render(metrics.rows)
        written = None
        if self.write is not None:
            write_metrics(self.write, text)
            written = f"{self.write}/{FILE}"
        if not output.for_people:
            rows = [_row(row) for row in metrics.rows]
            content = {"written": written, "rows": rows, "problems": metrics.problems}
            output.document("metrics", content)
            return 0
        for problem in metrics.problems:
            output.message(f"note: {problem}")
        for line in [f"{written} is written"] if written else text.splitlines():
            output.line(line)
        return 0


def _row(row: Row) -> dict[str, Any]:
    """Return the metrics of one subject as JSON; all of them have the same labels."""
    family = row.values[0][0] if row.values else None
    labels = dict(zip(family.labels, row.labels)) if family else {}
    return {"labels": labels, "values": {one.name: value for one, value in row.values}}


VERBS: dict[str, type[HostVerb]] = {"bundle": Bundle, "metrics": ShowMetrics}
