# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the sessions, LUNs and logins of block storage over RDMA."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.block.logins import Login, NoLogin, Outcome
from ovirt_rdma.host.block.model import (
    LOGGED_IN,
    RUNNING,
    TIMEOUTS,
    BlockFacts,
    Lun,
    Session,
)
from ovirt_rdma.host.errors import Sentence


def print_sessions(sessions: Sequence[Session], output: Output) -> None:
    """Print the sessions, and each LUN with its paths."""
    if not sessions:
        output.line("This host has no session of block storage over RDMA.")
        return
    output.table(
        ("TARGET", "PROTOCOL", "BY", "STATE", "LUNS"),
        [
            (
                one.target,
                "iSER" if one.iqn else "SRP",
                f"{one.device}/{one.port}" if one.device else one.portal or "-",
                one.state,
                str(len(one.luns)),
            )
            for one in sessions
        ],
        {RUNNING: "good", LOGGED_IN: "good"},
    )
    luns: dict[str, list[Lun]] = {}
    for lun in (lun for one in sessions for lun in one.luns):
        luns.setdefault(lun.wwid or lun.device, []).append(lun)
    if luns:
        output.line()
        output.table(
            ("WWID", "SIZE", "PATHS", "STATE", "MAP", "VDSM OFFERS IT"),
            [
                (
                    wwid,
                    paths[0].shown_size,
                    ",".join(lun.device for lun in paths),
                    ",".join(sorted({lun.state for lun in paths})),
                    paths[0].map or "-",
                    "no" if all(lun.not_offered for lun in paths) else "yes",
                )
                for wwid, paths in luns.items()
            ],
            {"no": "doubtful"},
        )


def print_logins(
    outcomes: Sequence[Outcome], refused: Sequence[NoLogin], output: Output
) -> None:
    """Print the result of each login."""
    for one in outcomes:
        done = "logged in." if one.made else "was logged in before."
        output.line(f"{one.login.title}: {f'{one.problem}.' if one.problem else done}")
    for none in refused:
        output.line(f"{none.target.title}: {none.reason}.")
    if not outcomes and not refused:
        output.line("The policy has no target for block storage.")


def logins(
    outcomes: Sequence[Outcome], refused: Sequence[NoLogin]
) -> list[dict[str, Any]]:
    """Return the result of each login, for a document."""
    rows: list[dict[str, Any]] = [
        {
            "target": one.login.target.name,
            "device": one.login.device if isinstance(one.login, Login) else None,
            "port": one.login.port if isinstance(one.login, Login) else None,
            "logged_in": one.problem is None,
            "made": one.made,
            "problems": sentences(
                [*([one.problem] if one.problem else []), *one.notes]
            ),
        }
        for one in outcomes
    ]
    rows += (
        {
            "target": one.target.name,
            "device": None,
            "port": None,
            "logged_in": False,
            "made": False,
            "problems": sentences([one.reason]),
        }
        for one in refused
    )
    return rows


def sentences(found: Iterable[Sentence]) -> list[dict[str, str]]:
    """Return sentences with their ids, for a document."""
    return [{"id": one.id, "sentence": one} for one in found]


def facts_document(facts: BlockFacts) -> dict[str, Any]:
    """Return sessions and LUNs for a document."""
    return {
        "sessions": [session_document(one) for one in facts.sessions],
        "srp_ports": facts.srp_ports,
        "srp_daemon": facts.srp_daemon,
        "problems": list(facts.problems),
    }


def session_document(session: Session) -> dict[str, Any]:
    """Return a session for a document."""
    content = asdict(replace(session, luns=(), timeouts=()))
    content["timeouts"] = dict(zip(TIMEOUTS, session.timeouts))
    luns = [{**asdict(lun), "offered": lun.not_offered is None} for lun in session.luns]
    return {**content, "luns": luns}
