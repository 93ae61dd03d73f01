# SPDX-License-Identifier: GPL-2.0-or-later
"""The NetworkManager profile in which settings of a RoCE port's netdev are kept. Pure.

The netdev is an ordinary Ethernet one, so its profile is the admin's, the installer's
or the engine's. It is never made here: only single properties of it are set.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.rules.ipoib_settings import Settings
from ovirt_rdma.host.rules.rule import Change
from ovirt_rdma.host.rules.view import Interface, View, is_kept


def without_profile(view: View, interface: Interface) -> str:
    """Say why there is no profile to set a property of, or return ""."""
    manager = view.facts.network_manager
    if manager is None or not manager.running:
        return "NetworkManager does not run here: set it where the netdev is set up"
    if interface.profile is None:
        return f"no NetworkManager profile is active on {interface.name}"
    if not is_kept(interface.profile):
        return f"the profile of {interface.name} is in NetworkManager's memory only"
    return ""


def kept_value(interface: Interface, name: str) -> Optional[str]:
    """Return a property of the profile; None where there is no profile, or it does not
    say.
    """
    return Settings(profile=interface.profile).value(name)


def profile_change(interface: Interface, name: str, after: str) -> tuple[Change, ...]:
    """Return the Change that sets a property; none where it is so already."""
    if interface.profile is None:
        return ()
    return Settings(interface.profile.uuid, interface.profile).change(name, after)
