# SPDX-License-Identifier: GPL-2.0-or-later
"""``nfs mount-options``: the option string that VDSM passes to mount, and why."""

from __future__ import annotations

from argparse import Namespace
from typing import Optional

from ovirt_rdma.cli.nfs_words import engine_options_of, export_of
from ovirt_rdma.cli.policy_verbs import policy_in_question
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy import RuleMatch, rule_for
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.storage.named_export import NamedExport
from ovirt_rdma.storage.server_readiness import (
    Surroundings,
    address_in_facts,
    is_ipv6,
    steps_from_facts,
)
from ovirt_rdma.storage.shared import Shared
from ovirt_rdma.storage.stock_options import stock_warnings
from ovirt_rdma.storage.transport import Attempt, Choice, Families, choose
from ovirt_rdma.storage.vdsm_options import AUTO, option_string


def show(words: Namespace, screen: Screen) -> int:
    """Show what VDSM would pass to mount; 3 when the policy refuses the mount."""
    export = export_of(words.export)
    engine_options = engine_options_of(words.engine_options)
    policy, source = policy_in_question(words, screen)
    match = rule_for(policy, export)
    choice, warnings = _choose(words, export, match, engine_options)
    version = None if words.nfs_version == AUTO else words.nfs_version
    first = _passed(choice.first, version)
    fallback = _passed(choice.fallback, version)
    if screen.for_people:
        screen.fields(
            [
                ("options", first or "none, the mount is refused"),
                ("transport", choice.first.transport if choice.first else "none"),
                ("why", choice.reason),
                *([("fix", choice.fix)] if choice.fix else []),
                *([("fallback", fallback)] if fallback else []),
                *(("note", note) for note in choice.notes),
                *(("warning", warning) for warning in warnings),
                ("policy", source),
            ]
        )
    else:
        screen.document(
            "nfs-mount-options",
            {
                "export": str(export),
                "rule": match.rule.name if match else None,
                "transport": choice.first.transport if choice.first else None,
                "options": first,
                "fallback": fallback,
                "degraded": choice.degraded,
                "reason": choice.reason,
                "fix": choice.fix,
                "notes": list(choice.notes),
                "warnings": list(warnings),
                "policy": source,
            },
        )
    return 3 if choice.refused else 0


def _choose(
    words: Namespace, export: Export, match: Optional[RuleMatch], engine_options: str
) -> tuple[Choice, tuple[str, ...]]:
    """Return the choice, and warnings about what it was made from."""
    if match is None:
        choice = choose(None, engine_options, Families(), None)
        return choice, stock_warnings(engine_options, export.address)
    if words.facts is not None:
        return _choose_by_facts(words.facts, export, match, engine_options)
    shared = Shared(Surroundings(HostReader(words.root)))
    version = None if words.nfs_version == AUTO else words.nfs_version
    # The same decision that vdsmd makes, asked at the same places.
    named = NamedExport(export, match, engine_options, version, shared)
    return named.decide(named.ask_server()), ()


def _choose_by_facts(
    file: str, export: Export, match: RuleMatch, engine_options: str
) -> tuple[Choice, tuple[str, ...]]:
    from ovirt_rdma.host.facts_file import load

    facts = load(file)
    address = address_in_facts(facts, export.server)
    ipv6 = address is not None and is_ipv6(address)
    readiness = steps_from_facts(facts, export.server)
    choice = choose(match, engine_options, Families(ipv6, ipv6), readiness)
    if address is not None:
        return choice, ()
    return choice, (f"the address of {export.server} is not known, taken to be IPv4",)


def _passed(attempt: Optional[Attempt], version: Optional[str]) -> Optional[str]:
    return option_string(version, attempt.extra_options) if attempt else None
