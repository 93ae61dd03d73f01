# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``version``: what is installed, and what runs."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb
from ovirt_rdma.cli.output import when, when_iso
from ovirt_rdma.host.daemon.versions import (
    Loaded,
    Versions,
    read_versions,
    version_advice,
)
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.paths import POLICY_JSON, VDSMD_UNIT, under
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.json_codec import plain

# Of sha256:..., enough to tell policies apart; as `hosts check` shows them.
_DIGEST = len("sha256:") + 8


def loaded_text(loaded: Optional[Loaded]) -> str:
    """Return what a service runs, for people: ``0.2.0 (process 700, since ...)``."""
    if loaded is None:
        return "not running"
    process = [f"process {loaded.pid}"] if loaded.pid is not None else []
    process += [f"since {when(loaded.since)}"] if loaded.since is not None else []
    return f"{loaded} ({', '.join(process)})" if process else str(loaded)


def _policy_text(versions: Versions, root: str) -> str:
    if versions.policy is None:
        problem = in_force(under(root, POLICY_JSON)).problem
        return f"none in force: {problem.one_line}" if problem else "none is loaded"
    digits = versions.policy[:_DIGEST]
    return f"{digits}, loaded {when_iso(versions.policy_loaded_at or '')}"


class ShowVersion(HostVerb):
    """Show the versions of this host."""

    codes = "0 printed"
    examples = ("", "-o json")
    more = (
        "A process keeps what it has loaded when the package is updated: what\n"
        "vdsmd and the daemon have loaded is shown beside what is installed."
    )

    def run(self, context: Context) -> int:
        output = context.output
        problems: list[str] = []
        versions = read_versions(context.root, problems)
        if not output.for_people:
            output.document("version", {**plain(versions), "problems": problems})
            return 0
        for sentence in problems:
            output.message(f"note: {sentence}")
        output.fields(
            [
                ("ovirt-rdma-host", versions.add_on or UNKNOWN),
                *((unit, loaded_text(loaded)) for unit, loaded in versions.services),
                ("policy", _policy_text(versions, context.root)),
                ("VDSM", versions.vdsm or "not found"),
                ("kernel", versions.kernel or UNKNOWN),
                ("Python", versions.python),
            ]
        )
        advices = tuple(version_advice(versions))
        for advice in advices:
            output.text(f"{advice.sentence}.")
            output.fix(advice.fix)
        said = any(VDSMD_UNIT in advice.sentence for advice in advices)
        if versions.vdsmd and versions.vdsmd.restart_needed and not said:
            # It is not the vdsmd of the mode that is enabled.
            output.next("ovirt-rdma-host status")
        return 0
