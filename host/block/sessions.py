# SPDX-License-Identifier: GPL-2.0-or-later
"""Bring the sessions of block storage to what the policy says: read, log in, log out
and rescan, over SRP and iSER. Callers have the lock of the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Optional

from ovirt_rdma.host.block.iser import Iser
from ovirt_rdma.host.block.logins import (
    Login,
    Target,
    address_of,
    iser_logins,
    srp_logins,
)
from ovirt_rdma.host.block.read import BlockFacts, BlockReader, BlockRefused
from ovirt_rdma.host.block.srp import Srp
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.storage import ISER, SRP, Session
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.block import BlockPolicy, IserTarget, SrpTarget
from ovirt_rdma.host.system.commands import TIMEOUT_S, CommandFailed, run_command
from ovirt_rdma.host.system.tree import FileTree


class BlockSessions:
    """The sessions of the host below ``root``."""

    def __init__(self, root: str) -> None:
        self._root = root
        run = run_command if root == "/" else partial(_not_run, root)
        self._srp = Srp(root, lambda argv: run(argv, TIMEOUT_S))
        self._iser = Iser(root, run)
        self._reader = BlockReader(FileTree(root))

    def facts(self) -> BlockFacts:
        """Read all sessions with their LUNs."""
        return self._reader.facts()

    def logins(
        self, block: BlockPolicy, targets: Sequence[Target], facts: BlockFacts
    ) -> list[Login]:
        """Return the logins to ``targets``, of ``block``; those of SRP first."""
        srp = [one for one in targets if isinstance(one, SrpTarget)]
        iser = [one for one in targets if isinstance(one, IserTarget)]
        found = iser_logins(iser, facts.sessions)
        return [*self._srp_logins(block, srp, facts), *found] if srp else found

    def _srp_logins(
        self, block: BlockPolicy, targets: Sequence[SrpTarget], facts: BlockFacts
    ) -> list[Login]:
        host = HostReader(self._root)
        addresses = dict.fromkeys(address_of(one) for one in targets if one.dest)
        routes = [route for one in addresses if (route := host.route(one))]
        sessions = [one for one in facts.sessions if one.protocol == SRP]
        ports = host.partitions()
        # All targets of the policy, so that each session belongs to one of them.
        found = srp_logins(
            block.srp, ports.rdma_devices, ports.netdevs, routes, sessions
        )
        return [one for one in found if one.target in targets]

    def log_in(
        self,
        block: BlockPolicy,
        targets: Sequence[Target],
        total_s: Optional[float] = None,
    ) -> list[Login]:
        """Make the logins to ``targets``, of ``block``, that have no session; return
        all with their results.

        After ``total_s`` seconds none is begun.
        """
        any_srp = any(isinstance(one, SrpTarget) for one in targets)
        module = self._srp.load_module() if any_srp else None
        logins = self.logins(block, targets, self.facts())
        srp = [one for one in logins if isinstance(one.target, SrpTarget)]
        iser = [one for one in logins if isinstance(one.target, IserTarget)]
        if module:
            srp = [replace(one, problem=one.problem or module) for one in srp]
        return [
            *self._srp.log_in(srp, block.login_timeout, total_s),
            *self._iser.log_in(iser, block.login_timeout),
        ]

    def log_out(self, leaving: Sequence[Session]) -> list[Sentence]:
        """End the sessions ``leaving``; return what failed.

        Raises BlockRefused, and ends none, if one of their LUNs is in use.
        """
        users = self._reader.users([lun.device for one in leaving for lun in one.luns])
        if users:
            raise BlockRefused(
                "block-in-use",
                f"nothing was logged out, because {len(users)} "
                f"user{'' if len(users) == 1 else 's'} would lose LUNs: "
                f"{'; '.join(users)}",
                "put the host into maintenance, or end these",
            )
        ends = {True: self._srp.log_out, False: self._iser.log_out}
        return [why for one in leaving if (why := ends[one.protocol == SRP](one))]

    def rescan(self, sessions: Iterable[Session]) -> list[Sentence]:
        """Look for new LUNs and new sizes; return what failed."""
        return self._srp.rescan(one for one in sessions if one.is_up)


def leaving_sessions(
    block: BlockPolicy, facts: BlockFacts, names: Optional[Sequence[str]]
) -> tuple[list[Session], list[str]]:
    """Return the sessions that ``names`` mean, and the names that mean none.

    A name is that of a target in ``block``, an ioc_guid or an IQN. None: all of SRP,
    and those of iSER that ``block`` has, as others may be VDSM's. Pure.
    """
    if names is None:
        own = iser_logins(block.iser, facts.sessions)
        iser = {one.session.number for one in own if one.session}
        return [
            one for one in facts.sessions if one.protocol == SRP or one.number in iser
        ], []
    found: list[Session] = []
    unknown = []
    for name in names:
        guids = {one.ioc_guid for one in block.srp if one.name == name}
        guids.add(name.lower().removeprefix("0x"))
        named = [one for one in block.iser if one.name == name]
        logins = iser_logins(named, facts.sessions)
        numbers = {one.session.number for one in logins if one.session}
        of_name = [
            one
            for one in facts.sessions
            if (one.protocol == SRP and one.ioc_guid in guids)
            or (one.protocol == ISER and (one.number in numbers or one.iqn == name))
        ]
        if not of_name and len(guids) == 1 and not named:
            unknown.append(name)
        found += (one for one in of_name if one not in found)
    return found, unknown


def _not_run(root: str, argv: Sequence[str], timeout_s: float) -> str:
    raise CommandFailed(f"not run, because {root} is not this host's root")
