# SPDX-License-Identifier: GPL-2.0-or-later
"""Connect twenty exports of a silent server, in one call each."""

from __future__ import annotations

import pytest
from support.storage.fake_network import FakeNetwork
from support.storage.vdsm_site import MOUNT_FAILED, NAS, Site

from ovirt_rdma.storage.readiness import RecentAnswers

READINESS_TIMEOUT_S = 2.0
LIMIT_S = 10.0


class SilentNetwork(FakeNetwork):
    """No server answers; every question takes its whole timeout."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site

    def rdma_listener(self, address, port, timeout_s):
        self._site.now += timeout_s + 0.1
        return super().rdma_listener(address, port, timeout_s)

    def tcp_answers(self, address, port, timeout_s):
        self._site.now += timeout_s + 0.1
        return super().tcp_answers(address, port, timeout_s)


@pytest.mark.parametrize("transport", ["require-rdma", "prefer-rdma"])
def test_they_fail_in_seconds_in_all(site, transport):
    site.network = RecentAnswers(SilentNetwork(site), lambda: site.now)
    site.start_vdsmd()
    site.rule(transport, readiness_timeout=READINESS_TIMEOUT_S)
    for number in range(20):
        assert site.connect(f"{NAS}:/export{number}") == [MOUNT_FAILED]
        site.now += 0.05
    assert site.now < LIMIT_S
