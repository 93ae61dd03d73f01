# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``bundle``: collect what a support case needs in one file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.services import support_bundle


def bundle(args: Namespace, output: Output) -> int:
    """Write the bundle; what is missing in it is a note."""
    path = Path(args.file)
    if not path.name.endswith(support_bundle.SUFFIX):
        raise UsageProblem(
            "bundle-name",
            f"{args.file!r} does not end in {support_bundle.SUFFIX}",
            f"name the file, for example hv1{support_bundle.SUFFIX}",
        )
    if path.exists() or path.is_symlink():
        raise support_bundle.exists(path)
    output.progress("reading the host")
    made = support_bundle.collect(args.root)
    size = support_bundle.write(made, path, args.root)
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
    output.line(f"{path} is written: {count(len(made.parts), 'part')}, {size} bytes.")
    return 0
