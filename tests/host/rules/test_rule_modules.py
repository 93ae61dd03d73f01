# SPDX-License-Identifier: GPL-2.0-or-later
"""MODULE-01 and MODULE-02: modules that the hardware needs, and the policy's."""

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
    roce_device,
    steps,
)

from ovirt_rdma.host.facts.model import OwnFile, Unit
from ovirt_rdma.host.rules import modules
from ovirt_rdma.host.rules.modules import lists_for
from ovirt_rdma.host.system.files import MODULES_LOAD, own_text

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


@pytest.mark.parametrize(
    ("host", "verdict", "words"),
    [
        (
            _ib(software=NO_RDMA_CORE, load_lines=()),
            "WARN",
            ("nothing loads it at boot", "host: modules: [ib_ipoib]"),
        ),
        (
            _ib(load_lines=RDMA_CORE_LISTS[:-2]),
            "WARN",
            ("nothing loads it at boot",),
        ),
        (
            # A driver that udev's rules do not list as InfiniBand.
            _ib(device=ib_device(driver="new_hca")),
            "WARN",
            ("nothing loads it at boot",),
        ),
        (
            _ib(load_lines=(load_line("ib_ipoib"),)),
            "PASS",
            ("/etc/modules-load.d/site.conf:2",),
        ),
        (_ib(software={}, load_lines=()), "SKIP", ("it is unknown what loads it",)),
        # No systemd to ask for units, as in a container.
        (
            _ib(software={}),
            "SKIP",
            ("it is unknown what loads it",),
        ),
        (_ib(software={}, load_lines=RDMA_CORE_LISTS[:-2]), "WARN", ("nothing loads",)),
        (_ib(WITHOUT_IPOIB), "WARN", ("although rdma-core", "UNIT-01")),
        (
            _ib(WITHOUT_IPOIB, software=NO_RDMA_CORE, load_lines=()),
            "WARN",
            ("is not loaded", "host: modules: [ib_ipoib]"),
        ),
        (
            _ib(WITHOUT_IPOIB, modprobe_lines=(modprobe("blacklist ib_ipoib"),)),
            "WARN",
            ("site.conf:3 prevents loading ib_ipoib (blacklist)", "modprobe ib_ipoib"),
        ),
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


def test_what_stops_the_kernel_from_loading_by_itself():
    line = modprobe("blacklist ib_uverbs")
    host = _ib(("mlx4_core", "ib_ipoib"), modprobe_lines=(line,))
    found = findings(modules.NEEDED, host)
    assert [n for n, (verdict, _) in found.items() if verdict == "WARN"] == [
        "ib_uverbs"
    ]


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


def test_without_policy_a_file_of_ours_is_only_named():
    host = facts(software={"own_files": (OwnFile(MODULES_LOAD, OLD),)})
    assert steps(modules.WANTED, host, host_policy()) == {}
    found = findings(modules.WANTED, host)["host"]
    assert found[0] == "WARN"
    assert "ib_srp" in found[1]
    assert "revert MODULE-02/boot" in found[1]
