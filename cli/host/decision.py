# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``check`` and ``plan`` have in common: facts, policy, and what follows."""

from __future__ import annotations

import difflib
import shlex
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass

from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.decision import registry
from ovirt_rdma.host.decision.registry import Decision, decide
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import Rule


@dataclass(frozen=True)
class Decided:
    """What was decided, and from what; ``source`` says where the policy is from.

    ``loaded`` says whether a policy is in force, or --policy names one.
    """

    facts: Facts
    policy: Policy
    source: str
    loaded: bool
    decision: Decision


def decided(words: Namespace, screen: Screen, skip: Iterable[str] = ()) -> Decided:
    """Hold this host, or a facts file, against the policy in question.

    ``skip`` are ids of rules to leave out. Raises UsageProblem for an unknown one.
    """
    left_out = {rule_of(one).id for one in skip}
    policy, source = policy_in_question(words, screen)
    if words.facts is None:
        facts = HostReader(words.root).facts()
    else:
        from ovirt_rdma.host.facts.dump import load

        facts = load(words.facts)
    return Decided(
        facts,
        policy,
        source,
        words.policy is not None or under(words.root, POLICY_JSON).exists(),
        decide(facts, policy, left_out),
    )


def rule_of(text: str) -> Rule:
    """Return the rule with this id, in any case; a step's id will do too.

    Raises UsageProblem, with the ids nearest to it, where there is none.
    """
    rule_id = text.partition("/")[0].strip()
    try:
        return registry.rule_by_id(rule_id)
    except KeyError:
        known = [rule.id for rule in registry.RULES]
        near = difflib.get_close_matches(rule_id.upper(), known, n=3)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageProblem(
            "rule-unknown",
            f"there is no rule {rule_id!r}",
            f"{meant}{PROGRAM} explain --list shows all",
        ) from None


def command(verb: str, words: Namespace, *more: str) -> str:
    """Return ``verb`` as a command line about the same host and policy."""
    argv = [PROGRAM, *verb.split(), *more]
    for option in ("policy", "facts"):
        file = getattr(words, option)
        if file is not None:
            argv += [f"--{option}", file]
    return " ".join(shlex.quote(word) for word in argv)
