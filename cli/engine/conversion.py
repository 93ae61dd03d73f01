# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``domain convert``, ``domain revert`` and ``domain heal``.

``convert`` moves domains to RDMA or back to TCP, and resumes a conversion that was
interrupted. ``revert`` restores what was there before it. ``heal`` remounts domains on
hosts that fell back to TCP.
"""

from __future__ import annotations

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine.arguments import ChangesDomains, add_batch
from ovirt_rdma.cli.engine.conversion_run import run, run_in_each
from ovirt_rdma.cli.parser import Parser

_OTHER_RUN = "75 another run is changing this data center"


class Convert(ChangesDomains):
    """Convert domains, or resume a conversion that was interrupted."""

    codes = (
        "0 converted, or nothing to do, 1 failed, 3 checks failed,\n"
        "4 refused or declined, 5 done on some hosts, not on others,\n"
        f"6 failed, and rolled back, {_OTHER_RUN}"
    )
    examples = (
        "data1 --to rdma --rolling",
        "data1 data2 --to rdma --rolling --dry-run",
        "data1 --to tcp",
    )
    more = (
        "Without --rolling the domain is down during the conversion, and no\n"
        "running virtual machine may use it. With --rolling, hosts go through\n"
        "maintenance one by one while virtual machines run. The same command\n"
        "resumes a conversion that was interrupted. Domains of one server that\n"
        "have the same NFS 4 minor version share one connection of the kernel\n"
        "and must be converted together."
    )

    names: list[str]
    to: str
    rolling: bool
    engine_options: bool
    policy_rule: str
    allow_datacenter_down: bool
    without: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="+", help="a domain's name")
        parser.add_argument(
            "--to", choices=("rdma", "tcp"), required=True, help="the transport"
        )
        parser.add_argument(
            "--rolling", action="store_true", help="host by host, while VMs run"
        )
        parser.add_argument(
            "--engine-options",
            action="store_true",
            help="use the engine's mount options only, for hosts without the add-on",
        )
        add_batch(parser)
        parser.add_argument(
            "--policy-rule",
            choices=("require-rdma", "prefer-rdma"),
            default="require-rdma",
            help="transport of the rule in the hosts' policy; default: require-rdma",
        )
        parser.add_argument(
            "--allow-datacenter-down",
            action="store_true",
            help="convert even if no other data domain is active, or with --rolling no "
            "other host is up",
        )
        parser.add_argument(
            "--without",
            metavar="HOST",
            action="append",
            default=[],
            help="leave out this host, for example because it is down; may be given "
            "several times",
        )
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        return run(
            self,
            context,
            "domain-convert",
            lambda rdma, how: rdma.convert(
                *self.names,
                to=self.to,
                rolling=self.rolling,
                by_row=self.engine_options,
                rule=self.policy_rule,
                allow_datacenter_down=self.allow_datacenter_down,
                without=tuple(dict.fromkeys(self.without)),
                data_center=self.datacenter,
                **how,
            ),
        )


class Revert(ChangesDomains):
    """Revert a conversion, of all domains that were converted together."""

    codes = (
        "0 reverted, 1 failed, 4 refused or declined,\n"
        f"5 done on some hosts, not on others, {_OTHER_RUN}"
    )
    examples = ("data1", "data1 --dry-run")
    more = (
        "Restores the storage connection and the hosts' policies that convert\n"
        "recorded."
    )

    name: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="a domain's name")
        add_batch(parser)
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        return run(
            self,
            context,
            "domain-revert",
            lambda rdma, how: rdma.revert(
                self.name, data_center=self.datacenter, **how
            ),
        )


class Heal(ChangesDomains):
    """Heal one data center after the other."""

    codes = (
        "0 healed, or nothing to do, 1 failed,\n"
        "3 a host cannot be healed, or is unknown, 4 refused or declined,\n"
        "5 done on some hosts, not on others, 6 failed, and rolled back,\n"
        f"{_OTHER_RUN}"
    )
    examples = ("", "data1 --batch 2", "--to-tcp")
    more = (
        "Hosts on which a mount has fallen back to TCP go through maintenance\n"
        "and activation, the SPM last, and are verified. --to-tcp is for domains\n"
        "whose RDMA mounts have stalled while TCP would work, and whose rule\n"
        "prefers RDMA: they are converted to TCP, host by host; 'domain revert'\n"
        "takes them forward again. Needs hosts that watch their mounts\n"
        "(health_interval in the policy)."
    )

    names: list[str]
    to_tcp: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="only these domains"
        )
        parser.add_argument(
            "--to-tcp",
            action="store_true",
            help="move domains to TCP whose RDMA mounts have stalled",
        )
        add_batch(parser)
        cls.add_shared(parser)

    def run(self, context: Context) -> int:
        return run_in_each(
            self,
            context,
            "domain-heal",
            self.names,
            lambda rdma, how, center, names: rdma.heal(
                center, *names, to_tcp=self.to_tcp, **how
            ),
        )
