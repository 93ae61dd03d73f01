# SPDX-License-Identifier: GPL-2.0-or-later
"""The summary before a conversion is short for many hosts, and complete."""

from __future__ import annotations

import pytest

from ovirt_rdma.cli.engine.domains import plan_lines, show_plan
from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    CONVERT,
    ConversionRequest,
    ConversionState,
    DomainRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import Kind, RunStep
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
from ovirt_rdma.host.policy.load import PolicyFiles

WORDS = {
    Kind.PUSH: "pushing the policy to",
    Kind.ENTER: "moving",
    Kind.LEAVE: "activating",
}
ROW = RunStep(Kind.CALL, "data1", "setting the mount options of data1")


def of(host: str, *kinds: str, policy: str = "version: 1\n") -> list[RunStep]:
    return [
        RunStep(kind, host, f"{WORDS[kind]} {host}", policy=PolicyFiles(policy))
        for kind in kinds
    ]


def plan(*steps: RunStep, batch: int = 1) -> ConversionPlan:
    domain = DomainRecord("id", "data1", "active", "row", "nas1", "/data1", "", "rdma")
    request = ConversionRequest("rdma", rolling=True, batch=batch)
    state = ConversionState(CONVERT, "dc", request, (domain,), ())
    return ConversionPlan(state, steps)


@pytest.mark.parametrize(
    ("batch", "steps", "lines"),
    [
        (
            1,
            [
                *of("host02", Kind.PUSH, Kind.ENTER, Kind.LEAVE),
                *of("host03", Kind.PUSH, Kind.ENTER, Kind.LEAVE),
                *of("host04", Kind.PUSH),
                ROW,
            ],
            [
                "host02, host03, one by one: policy, maintenance, activation",
                "host04: policy",
                "setting the mount options of data1",
                "8 changes for data1",
            ],
        ),
        (
            2,
            [
                *of("host02", Kind.ENTER),
                *of("host03", Kind.ENTER),
                *of("host03", Kind.LEAVE),
            ],
            [
                "host02: maintenance",
                "host03: maintenance, activation",
                "3 changes for data1",
            ],
        ),
        (
            2,
            [*of("host02", Kind.ENTER), *of("host03", Kind.ENTER)],
            ["host02, host03, 2 at a time: maintenance", "2 changes for data1"],
        ),
    ],
)
def test_hosts_for_which_the_same_is_done_are_one_line(batch, steps, lines):
    assert plan_lines(plan(*steps, batch=batch)) == lines


def test_a_policy_is_shown_once(capsys):
    output = Output()
    steps = [*of("host02", Kind.PUSH), *of("host03", Kind.PUSH)]
    show_plan(plan(*steps, *of("host04", Kind.PUSH, policy="other")), output)
    output.flush()
    assert capsys.readouterr().out.splitlines() == [
        "1. pushing the policy to host02",
        "   version: 1",
        "2. pushing the policy to host03",
        "   (the policy of step 1)",
        "3. pushing the policy to host04",
        "   other",
    ]
