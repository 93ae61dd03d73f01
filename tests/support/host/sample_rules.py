# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules for tests of the commands: every verdict, every class and kind of change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ovirt_rdma.host.rules.base import (
    FAIL,
    FILE,
    LINK_DOWN,
    LIVE,
    OFFLOAD,
    PASS,
    PROFILE,
    REBOOT,
    SKIP,
    SYSFS,
    WARN,
    Change,
    Finding,
    Outcome,
    Rule,
    Step,
    View,
)

MODE = Step(
    rule="SAMPLE-MODE-01",
    subject="ib0",
    sentence="ib0 gets connected mode",
    before="datagram",
    after="connected",
    effect=LINK_DOWN,
    reason="the policy's interface 'storage' says transport_mode: connected, and the "
    "driver allows it",
    undo="set infiniband.transport-mode of the profile back to datagram",
    changes=(
        Change(PROFILE, "5f1a", "datagram", "connected", "infiniband.transport-mode"),
        Change(PROFILE, "5f1a", None, "65520", "infiniband.mtu"),
        Change(SYSFS, "/sys/class/net/ib0/mode", "datagram", "connected"),
    ),
    users=("nfs: 10.0.0.1:/data at /mnt/data", "migration: network migrate"),
)
TSO = Step(
    rule="SAMPLE-TSO-01",
    subject="ib0",
    sentence="TSO of ib0 is turned off",
    before="on",
    after="off",
    effect=LIVE,
    reason="this HCA is revision a0",
    undo="ethtool -K ib0 tso on",
    changes=(Change(OFFLOAD, "ib0", "on", "off", "tx-tcp-segmentation"),),
)
OPTION = Step(
    rule="SAMPLE-OPTION-01",
    subject="mlx4_core",
    sentence="mlx4_core gets the option log_mtts_per_seg=5",
    before="none",
    after="5",
    effect=REBOOT,
    reason="the policy says so",
    undo="take the line out of /etc/modprobe.d/ovirt-rdma.conf",
    changes=(
        Change(
            FILE,
            "/etc/modprobe.d/ovirt-rdma.conf",
            "# ours\n",
            "# ours\noptions mlx4_core log_mtts_per_seg=5\n",
        ),
    ),
)
REFUSED = Step(
    rule="SAMPLE-MODE-01",
    subject="ib1",
    sentence="ib1 would get connected mode",
    before="datagram",
    after="connected",
    effect=LINK_DOWN,
    reason="the policy says so",
    undo="nothing to undo",
    refused="mlx5 has no connected mode",
)


def rule(rule_id: str, outcomes: Iterable[Outcome]) -> Rule:
    """Return a rule that always gives ``outcomes``, all of them its own."""
    listed = tuple(outcomes)
    assert all(outcome.rule == rule_id for outcome in listed)

    def decide(view: View) -> Iterator[Outcome]:
        assert isinstance(view, View)
        yield from listed

    return Rule(rule_id, decide, "")


def findings(
    rule_id: str, verdict: str, subjects: Sequence[str], fix: str = ""
) -> list[Finding]:
    """Return a finding for each subject."""
    return [Finding(rule_id, s, verdict, f"{s}: {verdict}", fix) for s in subjects]


PORTS = [f"mlx5_{device}/{port}" for device in range(16) for port in (1, 2)]
GOOD = rule("SAMPLE-PORT-01", findings("SAMPLE-PORT-01", PASS, PORTS))
BAD = rule(
    "SAMPLE-MODE-01",
    [
        *findings("SAMPLE-MODE-01", FAIL, ["ib0"], "set the mode"),
        *findings("SAMPLE-MODE-01", PASS, ["ib2"]),
        MODE,
        REFUSED,
    ],
)
DOUBTFUL = rule(
    "SAMPLE-TSO-01",
    [*findings("SAMPLE-TSO-01", WARN, ["ib0", "ib1"], "turn it off"), TSO],
)
ABSENT = rule(
    "SAMPLE-OPTION-01",
    [*findings("SAMPLE-OPTION-01", SKIP, ["host"]), OPTION],
)
ALL = (GOOD, BAD, DOUBTFUL, ABSENT)
