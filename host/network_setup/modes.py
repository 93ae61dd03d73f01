# SPDX-License-Identifier: GPL-2.0-or-later
"""The steps that give netdevs the transport modes which logical networks ask for by
their custom property ``ipoib_mode``. Pure.

They are the steps that the rules give for a policy whose first rules name exactly these
netdevs; so a mode is refused, and ``auto`` chosen, for the reasons that ``plan`` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.network_setup.validate import WantedMode
from ovirt_rdma.host.policy.model import InterfaceRule, Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, Step
from ovirt_rdma.host.rules.infiniband import mode, profile
from ovirt_rdma.host.rules.view import Interface, View

# A profile that keeps the mode has to be there before it.
_RULES = (profile.ID, mode.MODE)


@dataclass(frozen=True)
class ModeSteps:
    """What is to be done. ``refused`` says why a mode cannot be, a sentence for the
    engine's event log, and then nothing is to be done; ``notes`` are for the host's
    own log.
    """

    steps: tuple[Step, ...] = ()
    refused: str = ""
    notes: tuple[str, ...] = ()


def mode_steps(facts: Facts, policy: Policy, wanted: Sequence[WantedMode]) -> ModeSteps:
    """Return the steps for ``wanted``, whose networks need not be there yet."""
    facts = replace(facts, ovirt_networks=_networks(facts.ovirt_networks, wanted))
    found = {one.name: one for one in View(facts, policy).ipoib}
    known = [one for one in wanted if one.netdev in found]
    rules = tuple(_rule(found[one.netdev], one) for one in known)
    host = replace(policy.host, interfaces=(*rules, *policy.host.interfaces))
    decision = decide(facts, replace(policy, host=host))
    steps: list[Step] = []
    for one in known:
        mine = [
            step
            for step in decision.steps
            if step.rule in _RULES and step.subject == one.netdev
        ]
        refused = next((text for s in mine if (text := _refusal(s, one))), "")
        if refused:
            return ModeSteps(refused=refused)
        steps += mine
    return ModeSteps(tuple(steps), notes=tuple(_notes(wanted, found)))


def _refusal(step: Step, wanted: WantedMode) -> str:
    head = f"network {wanted.network}: {wanted.netdev}"
    if step.refused:
        shown = step.after if step.rule == mode.MODE else wanted.mode
        return f"{head} cannot be set to {shown} mode: {step.refused}"
    if step.effect == LINK_DOWN and step.users:
        users = "; ".join(step.users)
        return (
            f"{head} is in use ({users}), and going to {wanted.mode} mode takes its "
            "link down for a moment: put the host into maintenance first"
        )
    return ""


def _notes(wanted: Iterable[WantedMode], found: dict[str, Interface]) -> Iterable[str]:
    for one in wanted:
        head = f"network {one.network} asks for {one.mode} mode of {one.netdev}"
        interface = found.get(one.netdev)
        if interface is None:
            yield f"{head}, whose RDMA port cannot be told: left as it is"
            continue
        ipoib = interface.netdev.ipoib
        if ipoib is None or ipoib.mode is None:
            yield f"{head}, whose mode cannot be read: left as it is"
        named = interface.wanted
        policys = named.transport_mode if named else None
        if policys not in (None, one.mode):
            yield (
                f"{head}, and the policy ({named.title if named else ''}) for "
                f"{policys}: take transport_mode out of that rule, or "
                "ovirt-rdma-host apply sets the policy's"
            )


def _rule(interface: Interface, wanted: WantedMode) -> InterfaceRule:
    """Return a rule that names ``interface`` alone, and says all that the policy's own
    rule says, but for the mode.
    """
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
    """Return the host's networks as they will be: an MTU that is asked for decides
    about the mode.
    """
    new: dict[str, OvirtNetwork] = {}
    for one in wanted:
        new[one.network] = OvirtNetwork(one.network, one.base, mtu=_mtu(one.mtu))
    bases = {one.base for one in wanted}
    kept = (n for n in present if n.name not in new and n.southbound not in bases)
    return (*kept, *new.values())


def _mtu(mtu: Optional[int]) -> Optional[int]:
    return mtu if mtu and mtu > 0 else None
