# SPDX-License-Identifier: GPL-2.0-or-later
"""Profiles of type infiniband for a netdev that is not there: of an adapter that is
gone, or of a netdev that has another name now.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.rules.ipoib_settings import (
    INFINIBAND_TYPE,
    PARENT,
    Settings,
    renamed_profile,
)
from ovirt_rdma.host.rules.rule import WARN, Finding
from ovirt_rdma.host.rules.view import View, is_kept


def orphan_profiles(view: View, rule: str) -> Iterator[Finding]:
    """Give a finding of ``rule`` for each profile whose netdev is not there."""
    manager = view.facts.network_manager
    for profile in manager.profiles if manager else ():
        name = profile.interface_name
        settings = Settings(profile=profile)
        if (
            name is None
            or profile.type != INFINIBAND_TYPE
            or not is_kept(profile)
            or settings.value(PARENT) is not None
            or view.netdev(name) is not None
            or any(renamed_profile(view, one) is profile for one in view.ipoib)
        ):
            continue
        yield Finding(
            rule,
            name,
            WARN,
            f"the profile {profile.name!r} is for {name}, and there is no such netdev",
            f"if the netdev was renamed: nmcli connection modify {profile.uuid} "
            "connection.interface-name NAME; if the adapter is gone: nmcli connection "
            f"delete {profile.uuid}",
        )
