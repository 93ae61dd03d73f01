# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the block storage of a host with the policy, and with what it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Union

from ovirt_rdma.host.block.logins import IserLogin, Login, NoLogin
from ovirt_rdma.host.block.model import SRP, TIMEOUTS, BlockFacts, Lun, Session
from ovirt_rdma.host.errors import Sentence

PROGRAM = "ovirt-rdma-host"


def login_findings(
    wanted: Iterable[Union[Login, NoLogin, IserLogin]],
) -> list[Sentence]:
    """Return what is missing of the logins that the policy wants."""
    found = []
    for one in wanted:
        if isinstance(one, NoLogin):
            found.append(one.reason.about(one.target.title))
        elif one.session is None:
            kind = "srp" if isinstance(one, Login) else "iser"
            text = f"{one.title} is not logged in; {PROGRAM} block login"
            found.append(Sentence(f"{kind}-not-logged-in", text))
        elif isinstance(one, Login):
            found += _timeout_findings(one, one.session)
    return found


def _timeout_findings(login: Login, session: Session) -> list[Sentence]:
    return [
        Sentence(
            "srp-timeout-differs",
            f"{login.title}: {name} is {present}, the policy says {wanted}; "
            f"{PROGRAM} block login sets it",
        )
        for name, present in zip(TIMEOUTS, session.timeouts)
        if (wanted := getattr(login.target, name)) not in (None, present)
    ]


def session_findings(facts: BlockFacts) -> list[Sentence]:
    """Return what is wrong with the sessions that are there, and with their LUNs."""
    found = []
    for session in facts.sessions:
        if not session.is_up:
            text = f"the session {session.title} is {session.state}"
            kind = "srp" if session.protocol == SRP else "iser"
            found.append(Sentence(f"{kind}-session-not-running", text))
        for lun in session.luns:
            if lun.not_offered:
                what = f"VDSM does not offer {lun.device} ({lun.wwid})"
                text = f"{what}, because {lun.not_offered}"
                found.append(Sentence("lun-not-offered", text))
    return found


def differences(before: BlockFacts, after: BlockFacts) -> list[Sentence]:
    """Return how the LUNs have changed."""
    old, new = _by_device(before), _by_device(after)
    found = [
        Sentence("lun-new", f"{new[name].device} is new: {new[name].shown_size}")
        for name in sorted(new.keys() - old.keys())
    ]
    found += [
        Sentence("lun-gone", f"{name} is gone")
        for name in sorted(old.keys() - new.keys())
    ]
    found += [
        Sentence(
            "lun-resized",
            f"{name} had {old[name].shown_size}, and has {new[name].shown_size}",
        )
        for name in sorted(old.keys() & new.keys())
        if old[name].size != new[name].size
    ]
    return found


def _by_device(facts: BlockFacts) -> dict[str, Lun]:
    return {lun.device: lun for one in facts.sessions for lun in one.luns}
