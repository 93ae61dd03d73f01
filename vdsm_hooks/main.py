# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the hook of a hook point, with its time limit.

after_get_caps is not among them: it is a single file. The work of a hook point is
imported only when it is needed, because VDSM waits for the hook.
"""

from __future__ import annotations

from ovirt_rdma.vdsm_hooks.deadline import Answer, Work, answer_within, report_to_vdsm

BEFORE_VDSM_START = "before_vdsm_start"
BEFORE_NETWORK_SETUP = "before_network_setup"
AFTER_NETWORK_SETUP = "after_network_setup"
# Seconds. The engine waits 120 s for a network setup, systemd 90 s for vdsmd's start.
LIMITS_S = {
    BEFORE_VDSM_START: 20.0,
    BEFORE_NETWORK_SETUP: 10.0,
    AFTER_NETWORK_SETUP: 10.0,
}


def run(point: str, root: str) -> int:
    """Run the hook at ``point`` of the host below ``root`` ("" on a real host).

    Returns its exit code, 0 or 2. With 2, stderr has the sentence that VDSM passes on.
    """
    return report_to_vdsm(answer_within(point, LIMITS_S[point], _work(point, root)))


def _work(point: str, root: str) -> Work:
    def work() -> Answer:
        if point == BEFORE_NETWORK_SETUP:
            from ovirt_rdma.vdsm_hooks import network  # noqa: PLC0415

            return network.work(root)
        from ovirt_rdma.vdsm_hooks import network  # noqa: PLC0415

        if point == AFTER_NETWORK_SETUP:
            return network.after_network_setup(root)
        return network.before_vdsm_start(root)

    return work
