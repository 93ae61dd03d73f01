# SPDX-License-Identifier: GPL-2.0-or-later
"""No program of root's follows a link in a folder that other users can write.

Each reads a host on which every such name is a link to a file of somebody else: a
link may lead to a dead mount, which would hold up root, or to what only root may read.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.paths import DEGRADED_JSON, STARTED
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.services.enablement import read_state
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.metrics import exporter

# With the user that can write them: vdsm.
LINKS = (
    DEGRADED_JSON,
    STARTED,
    "/var/log/vdsm/vdsm.log",
    "/var/lib/vdsm/persistence/netconf/nets/storage",
    "/var/lib/vdsm/staging/netconf/nets/storage",
)
PROGRAMS = {
    "facts": lambda root: HostReader(root).facts(),
    "mounts": lambda root: HostReader(root).mount_facts(cm_ids=False),
    "metrics": lambda root: exporter.read_metrics(str(root)),
    "metrics again": lambda root: [exporter.export(str(root)) for _ in range(2)],
    "status": read_state,
    "health": lambda root: Looker(str(root)).look(Policy()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_link_of_another_user_is_followed(tmp_path, monkeypatch, name):
    root = soft_roce(tmp_path / "host").path
    canary = tmp_path / "canary"
    canary.write_text("{}")
    for path in LINKS:
        link = root / path.strip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(canary)
    followed = []

    def watch(call, follows):
        really = getattr(os, call)

        def watched(path, *rest, **keys):
            odd = isinstance(path, (str, bytes, os.PathLike)) and follows(rest, keys)
            if odd and os.path.realpath(os.fsdecode(path)) == str(canary):
                followed.append((call, str(path)))
            return really(path, *rest, **keys)

        monkeypatch.setattr(os, call, watched)

    watch("stat", lambda rest, keys: keys.get("follow_symlinks", True))
    watch("open", lambda rest, keys: not rest[0] & os.O_NOFOLLOW)
    watch("listdir", lambda rest, keys: True)
    watch("access", lambda rest, keys: True)
    PROGRAMS[name](Path(root))
    assert followed == []
