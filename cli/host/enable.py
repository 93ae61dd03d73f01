# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``enable`` and ``disable``."""

from __future__ import annotations

from ovirt_rdma.cli.host.arguments import HostVerb, refuse_facts
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Parser, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.host.enablement.apply import EnablementResult

_SCHEMA_VERSION = 2  # 1 had "notes", of mode nfsmount


_CODES = (
    "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
    "75 another run is changing this host"
)


class Enable(HostVerb):
    """Turn a mode on; a second run changes nothing."""

    codes = _CODES
    examples = ("", "--restart-vdsmd", "--mode host")
    more = (
        "A second run changes nothing. In mode vdsmd, vdsmd uses the policy\n"
        "from its next start on, and VDSM's hooks and our units act. In mode\n"
        "host only the hooks and units act, and NFS is left to the engine. Only\n"
        "one mode can be on."
    )

    mode: str
    restart_vdsmd: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--mode",
            metavar="MODE",
            default="vdsmd",
            help="vdsmd or host; default: vdsmd",
        )
        _add_restart(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.host.enablement import apply
        from ovirt_rdma.host.enablement.state import MODE_HOST

        result = apply.enable(context.root, self.mode, restart_vdsmd=self.restart_vdsmd)
        code = _report("enable", "enabled", result, context.output)
        if context.output.for_people and self.mode == MODE_HOST:
            context.output.line(
                "VDSM runs the hooks from now on; NFS is mounted as before."
            )
        return code


class Disable(HostVerb):
    """Undo enable; a second run changes nothing."""

    codes = _CODES
    examples = ("", "--restart-vdsmd")
    more = (
        "A second run changes nothing. A running vdsmd is unchanged until it is\n"
        "restarted."
    )

    restart_vdsmd: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_restart(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.host.enablement import apply

        result = apply.disable(context.root, restart_vdsmd=self.restart_vdsmd)
        return _report("disable", "disabled", result, context.output)


VERBS: dict[str, type[Verb]] = {"enable": Enable, "disable": Disable}


def _add_restart(parser: Parser) -> None:
    parser.add_argument(
        "--restart-vdsmd",
        action="store_true",
        help="restart vdsmd at once, if it is not the one that the mode needs",
    )
    refuse_facts(parser)


def _report(verb: str, state: str, result: EnablementResult, output: Output) -> int:
    import dataclasses

    if not output.for_people:
        output.document(
            verb,
            {
                "changed": result.changed,
                "restart_needed": result.restart_needed,
                "advice": [dataclasses.asdict(advice) for advice in result.advice],
                "steps": [dataclasses.asdict(step) for step in result.steps],
            },
            _SCHEMA_VERSION,
        )
        return 0
    for step in result.steps:
        output.line(f"done: {step.sentence}")
    if result.changed:
        output.line(f"Now {state}.")
    else:
        output.line(f"Nothing to do: already {state}.")
    if result.restart_needed:
        output.line("The running vdsmd has not been restarted yet.")
        output.fix("systemctl restart vdsmd (running VMs and mounts stay)")
    for advice in result.advice:
        output.text(f"{advice.sentence}.")
        output.fix(advice.fix)
    return 0
