# SPDX-License-Identifier: GPL-2.0-or-later
"""Read facts and policy, and decide: the common part of ``check`` and ``plan``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import Source
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import UsageProblem, did_you_mean
from ovirt_rdma.host.facts.model import Facts, load
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy, digest
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.rules import registry
from ovirt_rdma.host.rules.base import Rule
from ovirt_rdma.host.rules.registry import Decision, decide


@dataclass(frozen=True)
class HostDecision:
    """A decision with its facts and policy; ``source`` is where the policy is from.

    ``loaded``: a policy is loaded, or --policy names one. ``new``: --policy names
    another one than is loaded.
    """

    facts: Facts
    policy: Policy
    source: str
    loaded: bool
    new: bool
    decision: Decision


def load_decision(
    source: Source, context: Context, skip: Iterable[str] = ()
) -> HostDecision:
    """Decide for the host and with the policy that ``source`` names.

    ``skip`` are ids of rules to leave out. Raises UsageProblem for an unknown id.
    """
    left_out = {rule_of(text).id for text in skip}
    policy, place = policy_in_question(source.policy, context)
    if source.facts is None:
        facts = HostReader(context.root).facts()
    else:
        facts = load(source.facts)
    stored = under(context.root, POLICY_JSON)
    return HostDecision(
        facts,
        policy,
        place,
        source.policy is not None or stored.exists(),
        source.policy is not None and _differs(policy, stored),
        decide(facts, policy, left_out),
    )


def _differs(policy: Policy, stored: Path) -> bool:
    loaded = in_force(stored).stored
    return loaded is None or loaded.digest != digest(policy)


def rule_of(text: str) -> Rule:
    """Return the rule with this id, in upper or lower case; accept a step's id too.

    Raises UsageProblem with the nearest ids if there is none.
    """
    rule_id = text.partition("/")[0].strip()
    try:
        return registry.rule_by_id(rule_id)
    except KeyError:
        known = [rule.id for rule in registry.RULES]
        near = did_you_mean(rule_id, known, 3)
        raise UsageProblem(
            "rule-unknown",
            f"there is no rule {rule_id!r}",
            f"{near and near + ' '}list all ids: {PROGRAM} explain --list",
        ) from None


def command(verb: str, source: Source, *more: str) -> str:
    """Return a command line with ``verb`` for the same host and policy."""
    argv = [PROGRAM, *verb.split(), *more]
    for option, file in (("--policy", source.policy), ("--facts", source.facts)):
        if file is not None:
            argv += [option, file]
    return " ".join(shlex.quote(word) for word in argv)
