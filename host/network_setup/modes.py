# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the transport modes that logical networks ask for by ``ipoib_mode``. Pure.

The steps are those that the rules plan for a policy whose first rules name exactly
these netdevs. So a mode is refused, and ``auto`` is resolved, as in ``plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.network_setup.request import (
    NO_REFUSAL,
    WantedMode,
)
from ovirt_rdma.host.policy.model import InterfaceRule, Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, Step
from ovirt_rdma.host.rules.ipoib_mtu import MODE
from ovirt_rdma.host.rules.ipoib_profile import PROFILES
from ovirt_rdma.host.rules.view import Interface, View

# The profile that keeps the mode must exist before the mode is set.
_RULES = (PROFILES.id, MODE.id)


@dataclass(frozen=True)
class ModeSteps:
    """The steps to carry out; none if ``refused``.

    ``refused`` says for the engine's event log why a mode cannot be set; ``notes`` are
    sentences for the host's own log.
    """

    steps: tuple[Step, ...] = ()
    refused: Sentence = NO_REFUSAL
    notes: tuple[str, ...] = ()


def mode_steps(facts: Facts, policy: Policy, wanted: Sequence[WantedMode]) -> ModeSteps:
    """Return the steps for ``wanted``, whose networks need not exist yet."""
    facts = replace(facts, ovirt_networks=_networks(facts.ovirt_networks, wanted))
    interfaces = {interface.name: interface for interface in View(facts, policy).ipoib}
    known = [request for request in wanted if request.netdev in interfaces]
    rules = tuple(_rule(interfaces[request.netdev], request) for request in known)
    host = replace(policy.host, interfaces=(*rules, *policy.host.interfaces))
    decision = decide(facts, replace(policy, host=host))
    steps: list[Step] = []
    for request in known:
        its_steps = [
            step
            for step in decision.steps
            if step.rule in _RULES and step.subject == request.netdev
        ]
        for step in its_steps:
            refused = _refusal(step, request)
            if refused:
                return ModeSteps(refused=refused)
        steps += its_steps
    return ModeSteps(tuple(steps), notes=tuple(_notes(wanted, interfaces)))


def _refusal(step: Step, wanted: WantedMode) -> Sentence:
    head = f"network {wanted.network}: {wanted.netdev}"
    if step.refused:
        shown = step.after if step.rule == MODE.id else wanted.mode
        sentence = f"{head} cannot be set to {shown} mode: {step.refused}"
        return Sentence("ipoib-mode-refused", sentence)
    if step.effect == LINK_DOWN and step.users:
        users = "; ".join(step.users)
        return Sentence(
            "netdev-in-use",
            f"{head} is in use ({users}), and the change to {wanted.mode} mode takes "
            "its link down for a moment: put the host into maintenance first",
        )
    return NO_REFUSAL


def _notes(
    wanted: Iterable[WantedMode], interfaces: dict[str, Interface]
) -> Iterable[str]:
    for request in wanted:
        head = (
            f"network {request.network} asks for {request.mode} mode of "
            f"{request.netdev}"
        )
        interface = interfaces.get(request.netdev)
        if interface is None:
            yield f"{head}: its RDMA port could not be determined; unchanged"
            continue
        ipoib = interface.netdev.ipoib
        if ipoib is None or ipoib.mode is None:
            yield f"{head}: its present mode could not be read; unchanged"
        rule = interface.wanted
        policys = rule.transport_mode if rule else None
        if policys not in (None, request.mode):
            yield (
                f"{head}, but the policy ({rule.title if rule else ''}) asks for "
                f"{policys}: remove transport_mode from that rule; otherwise "
                "ovirt-rdma-host apply sets the policy's mode"
            )


def _rule(interface: Interface, wanted: WantedMode) -> InterfaceRule:
    """Return a rule for ``interface`` only: the policy's rule with another mode."""
    ipoib = interface.netdev.ipoib
    return replace(
        interface.wanted or InterfaceRule(0, ""),
        name=f"network {wanted.network}",
        link_layer=None,
        device=interface.device.name,
        pci=None,
        port=interface.port.number,
        guid=None,
        pkey=ipoib.pkey if ipoib else None,
        transport_mode=wanted.mode,
    )


def _networks(
    present: Sequence[OvirtNetwork], wanted: Sequence[WantedMode]
) -> tuple[OvirtNetwork, ...]:
    """Return the host's networks after the setup: the wanted MTU decides the mode."""
    new = {
        request.network: OvirtNetwork(
            request.network, request.base, mtu=_mtu(request.mtu)
        )
        for request in wanted
    }
    bases = {request.base for request in wanted}
    kept = (n for n in present if n.name not in new and n.southbound not in bases)
    return (*kept, *new.values())


def _mtu(mtu: Optional[int]) -> Optional[int]:
    return mtu if mtu and mtu > 0 else None
