# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask the subnet manager of a fabric, with infiniband-diags; nothing is changed.

Each question has a timeout. What is not answered is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Callable, Optional, TypeVar

from ovirt_rdma.host.collect.parsers.ibnetdiscover import fabric_ports
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.fabric.model import guid_text
from ovirt_rdma.host.facts.devices import RdmaPort
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.opensm import replies
from ovirt_rdma.host.opensm.processes import OpensmProcess, running_opensm
from ovirt_rdma.host.opensm.replies import BroadcastGroup, Manager
from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled, Runner
from ovirt_rdma.host.system.tree import FileTree

# What smpquery says of a GUID that the subnet manager does not know.
_Answer = TypeVar("_Answer")

_NO_SUCH_PORT = "can't resolve destination port"


@dataclass(frozen=True)
class LocalPort:
    """An InfiniBand port of this host, with its GUID as partitions.conf has it."""

    device: str
    number: int
    guid: str
    port: RdmaPort

    @property
    def title(self) -> str:
        """The port in sentences: ``mlx4_0/1``."""
        return f"{self.device}/{self.number}"


@dataclass(frozen=True)
class Subnet:
    """What the subnet manager behind ``port`` says; None where it does not answer.

    ``managers`` are all subnet managers, ``groups`` the broadcast groups of IPoIB.
    """

    port: LocalPort
    master: Optional[Manager] = None
    managers: Optional[tuple[Manager, ...]] = None
    groups: Optional[tuple[BroadcastGroup, ...]] = None
    problems: tuple[Sentence, ...] = ()


@dataclass(frozen=True)
class FabricFacts:
    """The InfiniBand ports with their subnets, and the opensm processes, of a host."""

    hostname: str
    subnets: tuple[Subnet, ...]
    processes: tuple[OpensmProcess, ...] = ()

    @property
    def guids(self) -> frozenset[str]:
        """The GUIDs of this host's InfiniBand ports."""
        return frozenset(one.port.guid for one in self.subnets)


def local_ports(facts: Facts) -> tuple[LocalPort, ...]:
    """Return the InfiniBand ports of this host that have a GUID."""
    return tuple(
        LocalPort(
            device.name,
            port.number,
            guid_text(int(port.guid.replace(":", ""), 16)),
            port,
        )
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_infiniband and port.guid
    )


@dataclass
class FabricReader:
    """Asks through ``run``; None: no tool is run, and all answers are unknown."""

    tree: FileTree
    run: Optional[Runner]
    problems: list[Sentence] = field(default_factory=list)

    def facts(self, facts: Facts) -> FabricFacts:
        """Return what is known of the fabric of the host with these ``facts``."""
        subnets = tuple(map(self.subnet, local_ports(facts)))
        return FabricFacts(facts.hostname, subnets, running_opensm(self.tree))

    def subnet(self, port: LocalPort) -> Subnet:
        """Ask the subnet manager behind ``port``."""
        self.problems = []
        if not port.port.is_active:
            return Subnet(port)
        found = self._asked("sminfo", port, (), replies.manager)
        smir = groups = None
        if found is not None:
            # Not with --smkey: opensm then shows members, and no group without one.
            smir = self._asked("saquery", port, ("SMIR",), replies.managers)
            groups = self._asked("saquery", port, ("-g",), replies.broadcast_groups)
        return Subnet(port, found, smir, groups, tuple(self.problems))

    def missing_tools(self) -> Optional[Sentence]:
        """Return why the subnet manager cannot be asked; None if it can."""
        try:
            self._tool(("sminfo", "-V"))
        except NotInstalled:
            return _missing("sminfo")
        except CommandFailed:
            pass  # it is there; whether it works is seen when it asks
        return None

    def manager_at(self, port: LocalPort, lid: int) -> Optional[Manager]:
        """Return the subnet manager that runs at the port with ``lid``, asked from
        ``port``; None if none answers. One on standby answers too.
        """
        try:
            return replies.manager(self._tool(("sminfo", *_at(port), str(lid))))
        except (CommandFailed, ValueError):
            return None

    def reachable(self, port: LocalPort) -> Optional[frozenset[str]]:
        """Return the GUIDs of the hosts' ports in the subnet behind ``port``, its own
        too, also without a subnet manager (ibnetdiscover asks by directed routes). None
        if that is unknown.
        """
        self.problems = []
        found = self._asked("ibnetdiscover", port, (), fabric_ports)
        return frozenset(one.guid for one in found) if found else None

    def tables(
        self, port: LocalPort, guids: Iterable[str]
    ) -> Mapping[str, Optional[frozenset[int]]]:
        """Return the P_Key table of each port of ``guids``; None if it is not in the
        fabric. A port whose table could not be read is left out.
        """
        self.problems = []
        found: dict[str, Optional[frozenset[int]]] = {}
        for guid in guids:
            argv = ("smpquery", *_at(port), "-G", "pkeys", guid)
            try:
                found[guid] = replies.pkey_table(self._tool(argv))
            except NotInstalled:
                self._missing("smpquery")
                break
            except (CommandFailed, ValueError) as error:
                if _NO_SUCH_PORT in str(error) or "path_query" in str(error):
                    found[guid] = None
                else:
                    self._problem(port, "smpquery", str(error))
        return found

    def _asked(
        self,
        tool: str,
        port: LocalPort,
        more: tuple[str, ...],
        parse: Callable[[str], _Answer],
    ) -> Optional[_Answer]:
        try:
            return parse(self._tool((tool, *_at(port), *more)))
        except NotInstalled:
            self._missing(tool)
        except (CommandFailed, ValueError) as error:
            self._problem(port, tool, str(error))
        return None

    def _tool(self, argv: tuple[str, ...]) -> str:
        if self.run is None:
            raise NotInstalled("tools are not run below another root")
        return self.run(argv)

    def _problem(self, port: LocalPort, tool: str, why: str) -> None:
        self.problems.append(
            Sentence("fabric-tool-failed", f"{tool} at {port.title} failed: {why}")
        )

    def _missing(self, tool: str) -> None:
        self.problems.append(_missing(tool))


def _missing(tool: str) -> Sentence:
    return Sentence(
        "fabric-tool-missing",
        f"{tool} is not available here; it is in the package infiniband-diags",
    )


def _at(port: LocalPort) -> tuple[str, ...]:
    return ("-C", port.device, "-P", str(port.number))
