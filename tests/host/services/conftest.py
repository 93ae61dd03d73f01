# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.fakes.fake_changes import ChangingRoot, changing
from support.fakes.fake_hosts import connectx3_ib

from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.services.hook_runs import live_run, set_modes
from ovirt_rdma.host.services.network_request import WantedMode


@dataclass
class Site:
    """A host at which VDSM runs our hooks; ``said`` are their lines of the log."""

    host: ChangingRoot
    said: list = field(default_factory=list)

    def policy(self, text):
        policy = parse_policy(f"version: 1\nhost:\n{text}", "p.yaml").policy
        store(policy, "p.yaml", under(self.host.path, POLICY_JSON))

    def set(self, mode, netdev="ib0", mtu=1500):
        """Set the mode that a network asks for; return why not."""
        wanted = [WantedMode("storage", netdev, mode, netdev, mtu)]
        place, say = "before_network_setup", self.said.append
        doors = {**self._doors, "lock_wait_s": 0.0}
        return set_modes(self.host.path, wanted, place, say, **doors)

    def live(self, netdevs=None):
        """Do the live steps; return the lines of the log."""
        del self.said[:]
        place, say = "before_vdsm_start", self.said.append
        live_run(self.host.path, place, say, netdevs, **self._doors)
        return self.said

    @property
    def _doors(self):
        return {"run": self.host.run, "host": self.host.effects()}

    @property
    def runs(self):
        runs = Journal(self.host.path).ledger().runs
        return [(run.verb, run.by, run.outcome) for run in runs]

    @property
    def held(self):
        held = Journal(self.host.path).ledger().applied
        return list(dict.fromkeys(entry.step for entry in held))


@pytest.fixture
def site(tmp_path):
    """Without NetworkManager."""
    return Site(changing(connectx3_ib, tmp_path))
