# SPDX-License-Identifier: GPL-2.0-or-later
"""MODULE-01, MODULE-02, MODOPT-01 and MODOPT-02: modules and their options."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.rule_cases import (
    INFINIBAND_MODULES,
    RDMA_CORE_LISTS,
    RDMA_CORE_UNITS,
    facts,
    findings,
    host_policy,
    ib_device,
    interface_rule,
    load_line,
    modprobe,
    option,
    parameter,
    roce_device,
    steps,
)

from ovirt_rdma.host.facts.model import OwnFile, Unit
from ovirt_rdma.host.rules import modules
from ovirt_rdma.host.rules.modules import lists_for, same_value
from ovirt_rdma.host.system.files import MODPROBE, MODULES_LOAD, own_text

UNITS = {"units": RDMA_CORE_UNITS}
NO_RDMA_CORE = {
    "units": (Unit("rdma-load-modules@rdma.service", "not-found", "inactive"),)
}
WITHOUT_IPOIB = tuple(m for m in INFINIBAND_MODULES if m != "ib_ipoib")


@pytest.mark.parametrize(
    ("driver", "lists"),
    [
        ("mlx4_core", ("rdma", "infiniband", "roce")),
        ("hfi1", ("rdma", "opa")),
        ("cxgb4", ("rdma", "iwarp")),
        ("bnxt_en", ("rdma", "roce")),
        ("rdma_rxe", ("rdma", "roce")),
        ("ice", ("rdma",)),
        (None, ("rdma",)),
    ],
)
def test_lists_that_rdma_core_loads(driver, lists):
    assert lists_for([ib_device(driver=driver)]) == lists


def _ib(loaded=INFINIBAND_MODULES, software=UNITS, device=None, **more):
    more.setdefault("load_lines", RDMA_CORE_LISTS)
    more.setdefault("available", INFINIBAND_MODULES)
    return facts(
        rdma_devices=(device or ib_device(),),
        modules={"loaded": loaded, **more},
        software=software,
    )


def test_everything_loaded_by_rdma_core():
    found = findings(modules.NEEDED, _ib())
    assert {verdict for verdict, _ in found.values()} == {"PASS"}
    assert "rdma-core (/etc/rdma/modules/infiniband.conf:2)" in found["ib_ipoib"][1]


NOTHING, IN_POLICY = "nothing loads it at boot", "host: modules: [ib_ipoib]"
NOT_KNOWN = "it is unknown what loads it"
WITHOUT_CORE = {"software": NO_RDMA_CORE, "load_lines": ()}
BLOCKED = {"modprobe_lines": (modprobe("blacklist ib_ipoib"),)}
BY_SITE = "/etc/modules-load.d/site.conf:2 loads it at boot"
BLACKLIST = "/etc/modprobe.d/site.conf:3 prevents loading ib_ipoib (blacklist)"


@pytest.mark.parametrize(
    ("host", "verdict", "words"),
    [
        (_ib(**WITHOUT_CORE), "WARN", (NOTHING, IN_POLICY)),
        (_ib(load_lines=RDMA_CORE_LISTS[:-2]), "WARN", (NOTHING,)),
        # A driver that udev's rules do not list as InfiniBand.
        (_ib(device=ib_device(driver="new_hca")), "WARN", (NOTHING,)),
        (_ib(load_lines=(load_line("ib_ipoib"),)), "PASS", (BY_SITE,)),
        # No systemd to ask for units, as in a container.
        (_ib(software={}, load_lines=()), "SKIP", (NOT_KNOWN,)),
        (_ib(software={}), "SKIP", (NOT_KNOWN,)),
        (_ib(software={}, load_lines=RDMA_CORE_LISTS[:-2]), "WARN", (NOTHING,)),
        (_ib(WITHOUT_IPOIB), "WARN", ("although rdma-core", "UNIT-01")),
        (_ib(WITHOUT_IPOIB, **WITHOUT_CORE), "WARN", ("is not loaded", IN_POLICY)),
        (_ib(WITHOUT_IPOIB, **BLOCKED), "WARN", (BLACKLIST, "modprobe ib_ipoib")),
        (
            _ib(WITHOUT_IPOIB, available=WITHOUT_IPOIB),
            "WARN",
            ("this kernel has no ib_ipoib",),
        ),
    ],
)
def test_ipoib_that_nothing_loads(host, verdict, words):
    found = findings(modules.NEEDED, host)["ib_ipoib"]
    assert found[0] == verdict
    for word in words:
        assert word in found[1]


def test_the_hint_is_not_given_to_those_who_followed_it():
    policy = host_policy(modules=("ib_ipoib",))
    host = _ib(software=NO_RDMA_CORE, load_lines=())
    verdict, text = findings(modules.NEEDED, host, policy)["ib_ipoib"][:2]
    assert (verdict, "MODULE-02" in text) == ("SKIP", True)
    host = _ib(WITHOUT_IPOIB, software=NO_RDMA_CORE, load_lines=())
    verdict, text = findings(modules.NEEDED, host, policy)["ib_ipoib"][:2]
    assert (verdict, "MODULE-02" in text) == ("WARN", True)
    assert "policy.yaml" not in text


def test_missing_ipoib_fails_where_the_policy_names_infiniband():
    policy = host_policy(interfaces=(interface_rule(link_layer="infiniband"),))
    assert findings(modules.NEEDED, _ib(WITHOUT_IPOIB), policy)["ib_ipoib"][0] == "FAIL"
    policy = host_policy(interfaces=(interface_rule(link_layer="ethernet"),))
    assert findings(modules.NEEDED, _ib(WITHOUT_IPOIB), policy)["ib_ipoib"][0] == "WARN"


def test_what_the_kernel_loads_by_itself_need_not_be_loaded():
    host = _ib(("mlx4_core", "mlx4_ib", "ib_core", "ib_ipoib"), load_lines=())
    found = findings(modules.NEEDED, host)
    for module in ("ib_umad", "ib_uverbs", "rdma_ucm"):
        assert found[module][0] == "PASS"
        assert "the kernel loads it" in found[module][1]


@pytest.mark.parametrize(
    ("line", "blocked"),
    [
        # NFSRDMA-01 judges rpcrdma.
        ("blacklist rpcrdma", ()),
        ("install rpcrdma /bin/true", ()),
        ("blacklist ib_uverbs", ("ib_uverbs",)),
        ("install ib_uverbs /bin/true", ("ib_uverbs",)),
        ("install ib_uverbs /sbin/modprobe --ignore-install ib_uverbs", ()),
    ],
)
def test_what_stops_the_kernel_from_loading_by_itself(line, blocked):
    host = _ib(("mlx4_core", "ib_ipoib"), modprobe_lines=(modprobe(line),))
    found = findings(modules.NEEDED, host)
    assert tuple(n for n, (verdict, _) in found.items() if verdict == "WARN") == blocked


def test_roce_needs_no_ipoib():
    host = facts(
        rdma_devices=(roce_device(),), modules={"available": ("rpcrdma", "ib_ipoib")}
    )
    assert "ib_ipoib" not in findings(modules.NEEDED, host)


def test_no_rdma_core():
    found = findings(modules.NEEDED, _ib(software=NO_RDMA_CORE))
    assert found["host"][0] == "WARN"
    assert "dnf install rdma-core" in found["host"][1]


def test_openibd_loads_modules_too():
    unit = Unit("openibd.service", "loaded", "active", "enabled")
    software = {"units": (*NO_RDMA_CORE["units"], unit)}
    found = findings(modules.NEEDED, _ib(software=software, load_lines=()))
    assert "host" not in found
    assert found["ib_ipoib"][0] == "PASS"
    assert "openibd" in found["ib_ipoib"][1]


def test_no_device():
    assert findings(modules.NEEDED, facts())["host"] == (
        "SKIP",
        "this host has no RDMA device | ",
    )


# MODULE-02

NVME = host_policy(modules=("nvme_rdma",))
AVAILABLE = {"available": ("nvme_rdma", "ib_srp", "rpcrdma", "ib_ipoib")}


def test_module_of_the_policy_is_loaded_and_written():
    found = steps(modules.WANTED, facts(modules=AVAILABLE), NVME)
    assert [step.effect for step in found.values()] == ["live", "live"]
    (load,) = found["nvme_rdma"].changes
    assert (load.kind, load.target, load.before) == ("module", "nvme_rdma", None)
    (file,) = found["boot"].changes
    assert (file.kind, file.target, file.before) == ("file", MODULES_LOAD, None)
    assert file.after == own_text(["nvme_rdma"])
    assert "is removed" in found["boot"].undo


def test_second_plan_is_empty():
    host = facts(
        modules={
            "loaded": ("nvme_rdma",),
            "load_lines": (load_line("nvme_rdma", MODULES_LOAD),),
        },
        software={"own_files": (OwnFile(MODULES_LOAD, own_text(["nvme_rdma"])),)},
    )
    assert steps(modules.WANTED, host, NVME) == {}
    assert findings(modules.WANTED, host, NVME)["nvme_rdma"][0] == "PASS"


def test_what_rdma_core_loads_gets_no_file():
    """rdma-core's own spelling is xprtrdma; the policy may use it too."""
    host = _ib()
    policy = host_policy(modules=("xprtrdma", "ib-ipoib"))
    assert steps(modules.WANTED, host, policy) == {}
    found = findings(modules.WANTED, host, policy)
    assert {v for v, _ in found.values()} == {"PASS"}


def test_what_another_file_loads_gets_no_line():
    lines = {"load_lines": (load_line("nvme_rdma"),)}
    host = facts(modules={**AVAILABLE, **lines})
    found = steps(modules.WANTED, host, NVME)
    assert list(found) == ["nvme_rdma"]  # now; the other file loads it at boot


@pytest.mark.parametrize(
    ("modules_", "words"),
    [
        ({"available": ("rpcrdma",)}, "this kernel has no nvme_rdma"),
        (
            {**AVAILABLE, "modprobe_lines": (modprobe("blacklist nvme-rdma"),)},
            "/etc/modprobe.d/site.conf:3 prevents it",
        ),
    ],
)
def test_module_that_cannot_be_loaded_is_refused(modules_, words):
    host = facts(modules=modules_)
    found = steps(modules.WANTED, host, NVME)
    assert list(found) == ["nvme_rdma"]
    assert words in found["nvme_rdma"].refused
    assert found["nvme_rdma"].changes == ()
    assert findings(modules.WANTED, host, NVME)["nvme_rdma"][0] == "FAIL"


def test_loaded_module_that_a_blacklist_keeps_out_at_boot():
    lines = {"modprobe_lines": (modprobe("blacklist nvme_rdma"),)}
    host = facts(modules={**AVAILABLE, **lines, "loaded": ("nvme_rdma",)})
    assert steps(modules.WANTED, host, NVME) == {}
    assert findings(modules.WANTED, host, NVME)["nvme_rdma"][0] == "FAIL"


def test_module_of_which_the_facts_say_nothing():
    """The facts do not show if 8021q is loaded, so only the file is checked."""
    policy = host_policy(modules=("8021q",))
    host = facts(modules=AVAILABLE)
    assert list(steps(modules.WANTED, host, policy)) == ["boot"]
    assert findings(modules.WANTED, host, policy)["8021q"][0] == "SKIP"


OLD = own_text(["ib_srp"])


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("nvme_rdma\n", "is not from ovirt-rdma"),
        ("", "is not from ovirt-rdma"),
        (OLD + "#  Mine\n", "left alone"),
        (None, "cannot be read"),
        (OLD, ""),
    ],
)
def test_file_that_is_there(text, refused):
    host = facts(
        modules={**AVAILABLE, "loaded": ("nvme_rdma",)},
        software={"own_files": (OwnFile(MODULES_LOAD, text),)},
    )
    step = steps(modules.WANTED, host, NVME)["boot"]
    assert refused in step.refused
    assert bool(step.refused) == bool(refused)
    if not refused:
        (change,) = step.changes
        assert (change.before, change.after) == (OLD, own_text(["nvme_rdma"]))
        assert (step.before, step.after) == ("ib_srp", "nvme_rdma")


def test_file_goes_when_something_else_loads_all():
    host = _ib()
    host = replace(
        host,
        software=replace(
            host.software, own_files=(OwnFile(MODULES_LOAD, own_text(["rpcrdma"])),)
        ),
    )
    policy = host_policy(modules=("rpcrdma",))
    (change,) = steps(modules.WANTED, host, policy)["boot"].changes
    assert change.after is None


def test_without_policy_a_file_of_ours_is_only_named(judged):
    host = facts(software={"own_files": (OwnFile(MODULES_LOAD, OLD),)})
    assert steps(modules.WANTED, host, host_policy()) == {}
    judged(
        modules.WANTED, host, None, "host", "WARN", "ib_srp", "revert MODULE-02/boot"
    )


# MODOPT-01


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
    found = findings(modules.UNKNOWN, host)
    assert [name for name in found if found[name][0] == "WARN"] == [subject]
    assert "/etc/modprobe.d/site.conf:3 sets" in found[subject][1]
    assert "explain MODOPT-01" in found[subject][1]


@pytest.mark.parametrize(
    "parts",
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
def test_option_that_is_alive(parts):
    assert findings(modules.UNKNOWN, facts(modules=parts))["host"][0] == "PASS"


def test_dead_option_in_the_policy():
    policy = host_policy(module_options=(option("mlx4_core mtu_4k=1"),))
    found = findings(modules.UNKNOWN, facts(), policy)["mlx4_core.mtu_4k"]
    assert "policy.yaml sets mtu_4k" in found[1]
    assert steps(modules.OPTIONS, facts(), policy) == {}


# MODOPT-02

VFS = host_policy(module_options=(option("mlx4_core num_vfs=8"),))
LINE = "options mlx4_core num_vfs=8"
OURS = {"own_files": (OwnFile(MODPROBE, own_text([LINE])),)}
LOADED = {"loaded": ("mlx4_core",), "parameters": (parameter("mlx4_core num_vfs=0"),)}


def test_option_of_a_loaded_module_takes_a_reboot():
    step = steps(modules.OPTIONS, facts(modules=LOADED), VFS)["boot"]
    assert step.effect == "reboot"
    assert "dracut -f" in step.reason
    (change,) = step.changes
    assert (change.kind, change.target, change.before) == ("file", MODPROBE, None)
    assert change.after == own_text([LINE])
    assert change.after.startswith("# ovirt-rdma revision 1\n")


def test_option_of_a_module_that_is_not_loaded_is_live():
    host = facts(modules={"available": ("mlx4_core",)})
    assert steps(modules.OPTIONS, host, VFS)["boot"].effect == "live"


def test_all_options_are_in_one_file():
    policy = host_policy(
        module_options=(
            option("mlx4_core num_vfs=8"),
            option("mlx4_core port_type_array=1,2"),
            option("ib_ipoib send_queue_size=512"),
        )
    )
    (step,) = steps(modules.OPTIONS, facts(), policy).values()
    assert step.changes[0].after.endswith(
        f"{LINE}\noptions mlx4_core port_type_array=1,2\n"
        "options ib_ipoib send_queue_size=512\n"
    )


def test_other_value_in_another_file_is_refused(judged):
    line = modprobe("options mlx4-core debug_level=1 num-vfs=4")
    host = facts(modules={**LOADED, "modprobe_lines": (line,)})
    found = steps(modules.OPTIONS, host, VFS)
    assert list(found) == ["mlx4_core.num_vfs"]
    step = found["mlx4_core.num_vfs"]
    assert step.refused == "/etc/modprobe.d/site.conf:3 sets num_vfs=4"
    assert step.changes == ()
    judged(
        modules.OPTIONS,
        host,
        VFS,
        "mlx4_core.num_vfs",
        "FAIL",
        "/etc/modprobe.d/site.conf:3",
    )


def test_same_value_in_another_file_is_enough(judged):
    host = facts(modules={"modprobe_lines": (modprobe("options mlx4_core num_vfs=8"),)})
    assert steps(modules.OPTIONS, host, VFS) == {}
    judged(modules.OPTIONS, host, VFS, "mlx4_core.num_vfs", "PASS")


@pytest.mark.parametrize(
    ("running", "verdict", "words"),
    [
        ("mlx4_core num_vfs=8", "PASS", "sets mlx4_core num_vfs=8"),
        ("mlx4_core num_vfs=0", "WARN", "running module has 0"),
        ("mlx4_core port_type_array=1", "SKIP", "modinfo -p mlx4_core"),
    ],
)
def test_written_option_and_the_running_module(judged, running, verdict, words):
    host = facts(
        modules={
            "loaded": ("mlx4_core",),
            "parameters": (parameter(running),),
            "modprobe_lines": (modprobe(LINE, f"{MODPROBE}:4"),),
        },
        software=OURS,
    )
    assert steps(modules.OPTIONS, host, VFS) == {}
    judged(modules.OPTIONS, host, VFS, "mlx4_core.num_vfs", verdict, words)


def test_option_of_a_module_that_this_host_does_not_have():
    """The policy is for all hosts: this is no reason for a file or a warning."""
    host = facts(modules={"available": ("mlx5_core",)})
    assert steps(modules.OPTIONS, host, VFS) == {}
    assert findings(modules.OPTIONS, host, VFS)["mlx4_core.num_vfs"][0] == "SKIP"


@pytest.mark.parametrize("text", ["options mlx4_core num_vfs=8\n", None, "# mine\n"])
def test_options_file_of_somebody_else_is_left(text):
    host = facts(software={"own_files": (OwnFile(MODPROBE, text),)})
    step = steps(modules.OPTIONS, host, VFS)["boot"]
    assert step.refused
    assert step.changes == ()


def test_without_policy_our_options_are_only_named(judged):
    host = facts(software=OURS)
    assert steps(modules.OPTIONS, host, host_policy()) == {}
    judged(modules.OPTIONS, host, None, "host", "WARN", LINE)


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
