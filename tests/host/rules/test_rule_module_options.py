# SPDX-License-Identifier: GPL-2.0-or-later
"""MODOPT-01 and MODOPT-02: options without effect, and the policy's."""

from __future__ import annotations

import pytest
from support.host.rule_cases import (
    facts,
    findings,
    host_policy,
    modprobe,
    option,
    parameter,
    steps,
)

from ovirt_rdma.host.facts.model import OwnFile
from ovirt_rdma.host.rules import modules as module_rules
from ovirt_rdma.host.rules.modules import same_value
from ovirt_rdma.host.system.files import MODPROBE, own_text


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("options mlx4_core mtu_4k=1", "mlx4_core.mtu_4k"),
        ("options mlx4-core set_4k_mtu=1", "mlx4_core.set_4k_mtu"),
        ("options mlx4_core num_vfs=8 log_num_mtt=24", "mlx4_core.log_num_mtt"),
        ("options ib_ipoib ipoib_enhanced=0", "ib_ipoib.ipoib_enhanced"),
        ("options ib_ipoib lro=1", "ib_ipoib.lro"),
    ],
)
def test_dead_option(line, subject):
    host = facts(modules={"modprobe_lines": (modprobe(line),)})
    found = findings(module_rules.UNKNOWN, host)
    assert [name for name in found if found[name][0] == "WARN"] == [subject]
    assert "/etc/modprobe.d/site.conf:3 sets" in found[subject][1]
    assert "explain MODOPT-01" in found[subject][1]


@pytest.mark.parametrize(
    "modules",
    [
        {"modprobe_lines": (modprobe("options mlx4_core num_vfs=8"),)},
        {"modprobe_lines": (modprobe("options mlx4_core log_mtts_per_seg=3"),)},
        {"modprobe_lines": (modprobe("blacklist mlx4_core"),)},
        # Every module takes them.
        {"modprobe_lines": (modprobe("options mlx5_core async_probe=1"),)},
        {"modprobe_lines": (modprobe('options mlx5_core dyndbg="file x +p"'),)},
        {  # MLNX_OFED's driver has it, and shows it
            "modprobe_lines": (modprobe("options mlx4_core log_num_mtt=24"),),
            "parameters": (parameter("mlx4_core log_num_mtt=24"),),
        },
    ],
)
def test_option_that_is_alive(modules):
    assert findings(module_rules.UNKNOWN, facts(modules=modules))["host"][0] == "PASS"


def test_dead_option_in_the_policy():
    policy = host_policy(module_options=(option("mlx4_core mtu_4k=1"),))
    found = findings(module_rules.UNKNOWN, facts(), policy)["mlx4_core.mtu_4k"]
    assert "policy.yaml sets mtu_4k" in found[1]
    assert steps(module_rules.OPTIONS, facts(), policy) == {}


# MODOPT-02

VFS = host_policy(module_options=(option("mlx4_core num_vfs=8"),))
LINE = "options mlx4_core num_vfs=8"
OURS = {"own_files": (OwnFile(MODPROBE, own_text([LINE])),)}
LOADED = {"loaded": ("mlx4_core",), "parameters": (parameter("mlx4_core num_vfs=0"),)}


def test_option_of_a_loaded_module_takes_a_reboot():
    step = steps(module_rules.OPTIONS, facts(modules=LOADED), VFS)["boot"]
    assert step.effect == "reboot"
    assert "dracut -f" in step.reason
    (change,) = step.changes
    assert (change.kind, change.target, change.before) == ("file", MODPROBE, None)
    assert change.after == own_text([LINE])
    assert change.after.startswith("# ovirt-rdma revision 1\n")


def test_option_of_a_module_that_is_not_loaded_is_live():
    host = facts(modules={"available": ("mlx4_core",)})
    assert steps(module_rules.OPTIONS, host, VFS)["boot"].effect == "live"


def test_all_options_are_in_one_file():
    policy = host_policy(
        module_options=(
            option("mlx4_core num_vfs=8"),
            option("mlx4_core port_type_array=1,2"),
            option("ib_ipoib send_queue_size=512"),
        )
    )
    (step,) = steps(module_rules.OPTIONS, facts(), policy).values()
    assert step.changes[0].after.endswith(
        f"{LINE}\noptions mlx4_core port_type_array=1,2\n"
        "options ib_ipoib send_queue_size=512\n"
    )


def test_other_value_in_another_file_is_refused():
    line = modprobe("options mlx4-core debug_level=1 num-vfs=4")
    host = facts(modules={**LOADED, "modprobe_lines": (line,)})
    found = steps(module_rules.OPTIONS, host, VFS)
    assert list(found) == ["mlx4_core.num_vfs"]
    step = found["mlx4_core.num_vfs"]
    assert step.refused == "/etc/modprobe.d/site.conf:3 sets num_vfs=4"
    assert step.changes == ()
    verdict, text = findings(module_rules.OPTIONS, host, VFS)["mlx4_core.num_vfs"]
    assert verdict == "FAIL"
    assert "/etc/modprobe.d/site.conf:3" in text


def test_same_value_in_another_file_is_enough():
    host = facts(modules={"modprobe_lines": (modprobe("options mlx4_core num_vfs=8"),)})
    assert steps(module_rules.OPTIONS, host, VFS) == {}
    found = findings(module_rules.OPTIONS, host, VFS)["mlx4_core.num_vfs"]
    assert found[0] == "PASS"


@pytest.mark.parametrize(
    ("running", "verdict", "words"),
    [
        ("mlx4_core num_vfs=8", "PASS", "sets mlx4_core num_vfs=8"),
        ("mlx4_core num_vfs=0", "WARN", "running module has 0"),
        ("mlx4_core port_type_array=1", "SKIP", "modinfo -p mlx4_core"),
    ],
)
def test_written_option_and_the_running_module(running, verdict, words):
    host = facts(
        modules={
            "loaded": ("mlx4_core",),
            "parameters": (parameter(running),),
            "modprobe_lines": (modprobe(LINE, f"{MODPROBE}:4"),),
        },
        software=OURS,
    )
    assert steps(module_rules.OPTIONS, host, VFS) == {}
    found = findings(module_rules.OPTIONS, host, VFS)["mlx4_core.num_vfs"]
    assert found[0] == verdict
    assert words in found[1]


def test_option_of_a_module_that_this_host_does_not_have():
    """The policy is for all hosts: this is no reason for a file or a warning."""
    host = facts(modules={"available": ("mlx5_core",)})
    assert steps(module_rules.OPTIONS, host, VFS) == {}
    assert findings(module_rules.OPTIONS, host, VFS)["mlx4_core.num_vfs"][0] == "SKIP"


@pytest.mark.parametrize("text", ["options mlx4_core num_vfs=8\n", None, "# mine\n"])
def test_file_of_somebody_else_is_left(text):
    host = facts(software={"own_files": (OwnFile(MODPROBE, text),)})
    step = steps(module_rules.OPTIONS, host, VFS)["boot"]
    assert step.refused
    assert step.changes == ()


def test_without_policy_a_file_of_ours_is_only_named():
    host = facts(software=OURS)
    assert steps(module_rules.OPTIONS, host, host_policy()) == {}
    found = findings(module_rules.OPTIONS, host)["host"]
    assert found[0] == "WARN"
    assert LINE in found[1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Y", "1", True),
        ("N", "0", True),
        ("0x10", "16", True),
        ("1,1", "1,1", True),
        ("1,2", "1", False),
        ("ib", "eth", False),
        ("08", "8", True),
        ("", "0", False),
        ("²", "2", False),
    ],
)
def test_same_value(one, other, same):
    assert same_value(one, other) is same
