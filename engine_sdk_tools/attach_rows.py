# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked for a network on hosts, and what that means for one of them: data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.engine_sdk_tools.address_texts import Interface
from ovirt_rdma.engine_sdk_tools.engine_facts import Attachment, Host
from ovirt_rdma.engine_sdk_tools.nic_choice import Chosen

# What becomes of a host.
ATTACH = "attach"
CHANGE = "change"
SYNC = "synchronise"
NOTHING = "nothing"

# NetworkConnectivityCheckTimeoutInSeconds and the engine's own limits for it.
CONNECTIVITY_S = 120


@dataclass(frozen=True)
class AttachRequest:
    """What is asked for. ``hosts`` are names and globs, ``nic_match`` as
    :class:`NicMatch` reads it.

    ``addresses`` by host name, from a plan file, or ``span``, the range that they are
    counted from. ``bond``: an active-backup bond of the nics. ``properties`` are custom
    ones. ``connectivity_s``: how long the host may be away before VDSM takes it back.
    """

    network: str
    hosts: tuple[str, ...]
    nic_match: str
    addresses: Optional[Mapping[str, Interface]] = None
    span: str = ""
    data_center: Optional[str] = None
    bond: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    connectivity_s: int = CONNECTIVITY_S


@dataclass(frozen=True)
class HostAttach:
    """One host: ``act`` is one of this module's words; ``why`` says what differs.

    ``before`` is the attachment that it has, ``before_nic`` the nic that it is on.
    ``properties`` are all that it is to have, also those that it has.
    """

    host: Host
    chosen: Chosen
    address: Interface
    act: str
    before: Optional[Attachment] = None
    before_nic: Optional[str] = None
    properties: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
