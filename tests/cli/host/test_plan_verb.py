# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json

import pytest
from support.host import sample_rules
from support.host.sample_rules import REFUSED, TSO, findings, rule

from ovirt_rdma.host.changes import plan as plans
from ovirt_rdma.host.policy.model import Policy, digest
from ovirt_rdma.host.rules.base import PASS, WARN

TABLE = """\
SAMPLE-MODE-01/ib0  link-down
  ib0 gets connected mode
  value    datagram -> connected
  why      the policy's interface 'storage' says transport_mode: connected, and \
the driver allows it
  undo     set infiniband.transport-mode of the profile back to datagram
  used by  nfs: 10.0.0.1:/data at /mnt/data
  used by  migration: network migrate
{mode}
SAMPLE-TSO-01/ib0  live
  TSO of ib0 is turned off
  value  on -> off
  why    this HCA is revision a0
  undo   ethtool -K ib0 tso on
{tso}
SAMPLE-OPTION-01/mlx4_core  reboot
  mlx4_core gets the option log_mtts_per_seg=5
  value  none -> 5
  why    the policy says so
  undo   take the line out of /etc/modprobe.d/ovirt-rdma.conf
{option}
refused, and never applied:

SAMPLE-MODE-01/ib1  refused
  ib1 would get connected mode
  refused  mlx5 has no connected mode
  value    datagram -> connected
  why      the policy says so

3 steps on hv1: 1 live (no interruption), 1 link-down (the link is down for a \
moment), 1 reboot (takes effect at the next boot); 1 refused (policy: no policy is \
loaded).
Nothing was changed.
next: ovirt-rdma-host apply
"""
DIFFS = {
    "mode": """\
infiniband.transport-mode of the profile 5f1a: datagram -> connected
infiniband.mtu of the profile 5f1a: none -> 65520
mode of ib0: datagram -> connected
""",
    "tso": """\
tx-tcp-segmentation of ib0: on -> off
""",
    "option": """\
--- /etc/modprobe.d/ovirt-rdma.conf
+++ /etc/modprobe.d/ovirt-rdma.conf
@@ -1 +1,2 @@
 # ours
+options mlx4_core log_mtts_per_seg=5
""",
}


def test_table(sampled):
    result = sampled(*sample_rules.ALL)("plan")
    plain = TABLE.format(mode="", tso="", option="")
    assert (result.code, result.out, result.err) == (0, plain, "")


def test_diffs(sampled):
    result = sampled(*sample_rules.ALL)("plan", "--diff")
    shown = TABLE.format(**DIFFS)
    assert (result.code, result.out, result.err) == (0, shown, "")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [([], 0), ([TSO], 3), ([REFUSED], 0), ([REFUSED, TSO], 3)],
)
def test_exit_code(sampled, outcomes, code):
    on_host = sampled(*(rule(step.rule, [step]) for step in outcomes))
    assert on_host("plan").code == 0
    assert on_host("plan", "--exit-code").code == code
    assert on_host("plan", "--exit-code", "-o", "json").code == code


HOST_PART = """\
version: 1
host:
  interfaces:
    - match: {link_layer: infiniband}
      tso: auto
"""


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (None, "no policy is loaded"),
        ("version: 1\n", "the policy has no host part ({file})"),
        (HOST_PART, "it matches the policy ({file})"),
    ],
)
def test_nothing_to_change(sampled, policy, why):
    on_host = sampled(rule("R", findings("R", PASS, ["a"])))
    words, file = ["plan"], on_host.root / "p.yaml"
    if policy:
        file.write_text(policy)
        words += ["--policy", str(file)]
    shown = on_host(*words).out
    assert shown.startswith(f"Nothing to change on hv1: {why.format(file=file)}.\n")
    assert f"next: {' '.join(['ovirt-rdma-host check', *words[1:]])}\n" in shown


def test_what_no_plan_can_change_is_not_called_as_the_policy_says(sampled):
    on_host = sampled(
        rule("R", [*findings("R", WARN, ["a"]), *findings("R", PASS, ["b"])])
    )
    file = on_host.root / "p.yaml"
    file.write_text(HOST_PART)
    shown = on_host("plan", "--policy", str(file)).out
    assert shown.startswith(
        f"Nothing that a plan can change on hv1 (policy: {file}); check has 1 finding."
    )


def test_only_refused(sampled):
    shown = sampled(rule(REFUSED.rule, [REFUSED]))("plan").out
    assert "\nNothing to change on hv1: 1 step refused.\n" in shown
    assert "Nothing was changed" not in shown


def test_document_is_the_saved_plan(sampled):
    on_host = sampled(*sample_rules.ALL)
    file = on_host.root / "plan.json"
    document = on_host("plan", "-o", "json", "--out", str(file)).document
    assert json.loads(file.read_text()) == document
    assert (document["schema_version"], document["kind"]) == (1, "plan")
    assert document["policy"] == {
        "source": "no policy is loaded",
        "digest": digest(Policy()),
    }
    assert [step["id"] for step in document["steps"]] == [
        "SAMPLE-MODE-01/ib0",
        "SAMPLE-MODE-01/ib1",
        "SAMPLE-TSO-01/ib0",
        "SAMPLE-OPTION-01/mlx4_core",
    ]
    assert list(plans.load(str(file)).steps) == [
        "SAMPLE-MODE-01/ib0",
        "SAMPLE-TSO-01/ib0",
        "SAMPLE-OPTION-01/mlx4_core",
    ]


def test_a_saved_plan_is_said_and_may_be_saved_again(sampled):
    on_host = sampled(*sample_rules.ALL)
    file = on_host.root / "plan.json"
    for _ in range(2):
        shown = on_host("plan", "--out", str(file))
        assert (shown.code, shown.err) == (0, "")
        assert f"\nSaved in {file}, for review.\n" in shown.out
        assert shown.out.endswith(f"\nnext: ovirt-rdma-host apply {file}\n")


def test_what_is_no_plan_is_not_overwritten(sampled):
    on_host = sampled(*sample_rules.ALL)
    file = on_host.root / "notes.txt"
    file.write_text("mine")
    on_host("plan", "--out", str(file)).refused(1, str(file), "not overwritten", "fix:")
    assert file.read_text() == "mine"


def test_a_folder_that_is_not_there(sampled):
    on_host = sampled(*sample_rules.ALL)
    on_host("plan", "--out", str(on_host.root / "no" / "plan.json")).refused(
        1, "the plan cannot be saved: No such file or directory", "fix: "
    )


def test_next_for_a_policy_that_is_not_loaded(sampled):
    on_host = sampled(*sample_rules.ALL)
    file = on_host.root / "p.yaml"
    file.write_text("version: 1\n")
    shown = on_host("plan", "--policy", str(file)).out
    assert shown.endswith(f"\nnext: ovirt-rdma-host policy load {file}\n")


def test_a_facts_file(sampled, facts_file):
    result = sampled(*sample_rules.ALL)("plan", "--facts", facts_file)
    assert "3 steps on hv7: " in result.out


def test_a_host_without_anything(host):
    result = host("plan", "--exit-code")
    assert result.code == 0
    assert "note: /sys/class/net cannot be read: No such file" in result.err
    assert "Nothing to change on " in result.out
