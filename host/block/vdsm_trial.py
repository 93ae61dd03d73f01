# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the setting with which VDSM logs out iSER sessions that it did not make.

With ``iser`` in ``[irs] iscsi_default_ifaces``, VDSM tries each connection of the
engine over the interface record ``iser`` first, and logs out again. If a session of
that record is there, the trial succeeds at once, and the logout ends that session
(IscsiConnection._maybe_connect_iser in lib/vdsm/storage/storageServer.py; node_login
in lib/vdsm/storage/iscsiadm.py takes "session exists" for success). It ends no session
of another record.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Union

from ovirt_rdma.host.collect.parsers import vdsm_conf
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.block_fields import ISER, IserTarget


def trial_findings(
    root: Union[str, Path], targets: Iterable[IserTarget]
) -> list[Sentence]:
    """Return a sentence for each target whose session VDSM's trial would end."""
    ending = [one for one in targets if one.interface == ISER]
    if not ending or ISER not in vdsm_conf.iscsi_default_ifaces(root):
        return []
    return [
        Sentence(
            "iser-trial-logout",
            f"{one.title}: VDSM ends its session when the engine connects this target, "
            f"because iscsi_default_ifaces in vdsm.conf has {ISER}; remove it there, "
            "or write another interface in the policy, such as rdma0",
        )
        for one in ending
    ]
