# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``metrics``: print or write what monitoring reads."""

from __future__ import annotations

from typing import Any, Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb, refuse_facts
from ovirt_rdma.cli.parser import Parser, file_name
from ovirt_rdma.storage.metrics.exporter import FILE, read_metrics, write_metrics
from ovirt_rdma.storage.metrics.rows import Row, render


class ShowMetrics(HostVerb):
    """Print the metrics, or write them into a folder."""

    codes = "0 printed or written, also if parts are missing, 1 not written"
    examples = ("", "--write /var/lib/node_exporter/textfile_collector")
    more = (
        "They are in the text format of Prometheus. With metrics_folder in the\n"
        "policy, the daemon writes them every 15 seconds."
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
