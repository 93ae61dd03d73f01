# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``hosts list`` and ``hosts check``."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    EngineVerb,
    add_data_center,
    add_host_access,
)
from ovirt_rdma.cli.engine.session import (
    matrix_code,
    open_session,
    own_policy,
    rdma_engine,
    show_matrix,
)
from ovirt_rdma.cli.parser import AllowNone, Context, Parser, add_allow_none, file_name
from ovirt_rdma.engine_sdk_tools.api.request import EngineProblem
from ovirt_rdma.engine_sdk_tools.fleet.check import failures, write_events
from ovirt_rdma.engine_sdk_tools.hosts.report import NAME, POINTS
from ovirt_rdma.engine_sdk_tools.model import (
    Engine,
    Host,
    hosts_named,
    status_label,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import ExitCode

_HEADINGS = (
    "HOST",
    "ADDRESS",
    "DATA CENTER",
    "CLUSTER",
    "STATUS",
    "VMS",
    "HOOKS",
    "IPOIB",
)


class ListHosts(EngineVerb):
    """List the hosts as the engine knows them."""

    codes = "0 listed, 1 failed"
    examples = ("", "--datacenter dc1 -o json")

    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_data_center(parser)

    def run(self, context: Context) -> int:
        output = context.output
        with open_session(self, output) as session:
            engine = read_engine(session, nics=True, hooks=True)
        hosts = hosts_named(engine, (), self.datacenter)
        if not output.for_people:
            output.document(
                "hosts-list",
                {
                    "hosts": [_document(engine, host) for host in hosts],
                    "problems": list(engine.problems),
                },
            )
            return 0
        for sentence in engine.problems:
            output.message(f"note: {sentence}")
        if not hosts:
            output.line("There is no host.")
            return 0
        output.table(_HEADINGS, [_cells(engine, host) for host in hosts])
        return 0


class Check(EngineVerb, AccessOptions, AllowNone):
    """Check hosts; return 3 if a check failed or is unknown, or without a host."""

    codes = (
        "0 no check failed, 1 failed,\n"
        "3 a check failed or is unknown, or there is no host"
    )
    examples = ("", "hv1 hv2", "--facts-dir dumps --policy policy.yaml", "--events")
    more = (
        "The engine's view of a host and the host's own report are shown\nseparately."
    )

    names: list[str]
    policy: Optional[str]
    events: bool
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="hosts; default: all"
        )
        parser.add_argument(
            "--policy",
            metavar="FILE",
            type=file_name,
            help="the policy that hosts should have; default: that of this machine or, "
            "without one, that of most hosts",
        )
        parser.add_argument(
            "--events",
            action="store_true",
            help="also write an event of the engine for each host with a failed check "
            "or a path that is down, at most one a day for the same failure; for a "
            "timer",
        )
        add_data_center(parser)
        add_host_access(parser)
        add_allow_none(parser, "host")

    def run(self, context: Context) -> int:
        output = context.output
        policy = own_policy(self.policy)
        with open_session(self, output) as session:
            matrix = rdma_engine(self, context, session).check_hosts(
                *self.names,
                policy=policy[0].policy if policy else None,
                policy_file=str(policy[1]) if policy else None,
                data_center=self.datacenter,
            )
            if matrix.rows or not output.for_people:
                show_matrix(output, matrix)
            if self.events:
                now, failed = datetime.now(timezone.utc), failures(matrix)
                try:
                    for host in write_events(session, failed, now):
                        output.message(f"note: the engine has a new event about {host}")
                except EngineProblem as problem:
                    output.message(f"note: {problem.one_line}; {problem.fix}")
                    return ExitCode.FAILED
        return matrix_code(self, output, matrix, "There is no host.")


def _cells(engine: Engine, host: Host) -> list[str]:
    document = _document(engine, host)
    return [
        host.name,
        host.address,
        document["data_center"] or "-",
        document["cluster"] or "-",
        status_label(host.status) + (" (SPM)" if document["spm"] else ""),
        str(host.vms),
        f"{len(document['hooks'])} of {len(POINTS)}",
        ", ".join(nic["name"] for nic in document["ipoib_nics"]) or "-",
    ]


def _document(engine: Engine, host: Host) -> dict[str, Any]:
    cluster = next((c for c in engine.clusters if c.id == host.cluster), None)
    centers = {center.id: center.name for center in engine.data_centers}
    return {
        "name": host.name,
        "id": host.id,
        "address": host.address,
        "data_center": centers.get((cluster.data_center or "") if cluster else ""),
        "cluster": cluster.name if cluster else None,
        "status": host.status,
        "spm": host.spm == "spm",
        "vms": host.vms,
        "hosted_engine": host.hosted_engine,
        "hooks": [hook.event for hook in host.hooks or () if hook.name == NAME],
        "ipoib_nics": [
            {"name": nic.name, "mtu": nic.mtu, "status": nic.status, "mac": nic.mac}
            for nic in host.nics or ()
            if nic.infiniband
        ],
    }
