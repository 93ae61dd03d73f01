# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the hook of a hook point, with its time limit.

after_get_caps is not among them: it is a single file. The work of a hook point is
imported only when it is needed, because VDSM waits for the hook.
"""

from __future__ import annotations

from ovirt_rdma.vdsm_hooks.deadline import Answer, Work, answer_within, report_to_vdsm

# Seconds. The engine waits 120 s for a network setup, systemd 90 s for vdsmd's start.
LIMITS_S = {
    "before_vdsm_start": 20.0,
    "before_network_setup": 10.0,
    "after_network_setup": 10.0,
}


def run(point: str, root: str) -> int:
    """Run the hook at ``point`` of the host below ``root`` ("" on a real host).

    Returns its exit code, 0 or 2. With 2, stderr has the sentence that VDSM passes on.
    """
    return report_to_vdsm(answer_within(point, LIMITS_S[point], _work(point, root)))


def _work(point: str, root: str) -> Work:
    def work() -> Answer:
        from ovirt_rdma.vdsm_hooks import network  # noqa: PLC0415

        answer: Answer = getattr(network, point)(root)
        return answer

    return work
