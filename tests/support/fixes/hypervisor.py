# SPDX-License-Identifier: GPL-2.0-or-later
"""The fixes of ovirt-rdma-host."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ovirt_rdma.host.changes.journal import Journal, refuse_while_open
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.paths import (
    BLOCK_SESSIONS_JSON,
    DROPIN_LINK,
    LAUNCHER,
    POLICY_COPY,
    POLICY_JSON,
    POLICY_YAML,
    STOCK_SUPERVDSMD,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.services.hook_runs import is_live
from support.fakes.fake_block import GUID
from support.fakes.fake_processes import VDSM, run_process
from support.fixes.rows import (
    Row,
    all_of,
    fixed,
    follow,
    mounted,
    remove,
    run,
    unmounted,
    write,
)
from support.host.changes_wanted import POLICY, killed_apply
from support.host.subnet_managers import OWN, PORT, SubnetManagers

SMALL = "version: 1\nnfs: {rules: [{server: nas, transport: tcp}]}\n"


def larger_group(host: Any) -> None:
    """Let the broadcast group have MTU 4092."""
    host.fake.group_mtu = 4092
    host.fake.ib_mtus("mlx4_0", 1, 4096, 4096)


def make_folder(path: str) -> Callable[[Any], None]:
    return lambda host: under(host.root, path).mkdir(parents=True)


def vdsmd_of(script: str, context: str) -> Callable[[Any], None]:
    """Let vdsmd run ``script`` in an SELinux ``context``."""

    def do(host: Any) -> None:
        run_process(host.root, 700, "/usr/bin/python3", script, user=VDSM)
        write("/proc/700/attr/current", f"{context}\0")(host)

    return do


VIRTD, SERVICE = (
    f"system_u:system_r:{kind}" for kind in ("virtd_t:s0", "unconfined_service_t:s0")
)


def other_selinux_domain(host: Any) -> None:
    """Let vdsmd run in another domain than supervdsmd."""
    write("/sys/fs/selinux/enforce", "1")(host)
    run_process(host.root, 699, "/usr/bin/python3", STOCK_SUPERVDSMD, user=0)
    write("/proc/699/attr/current", f"{VIRTD}\0")(host)
    vdsmd_of(LAUNCHER, SERVICE)(host)


def network_with_mode(host: Any) -> None:
    """The engine's network asks for connected mode, and ib0 is in datagram mode."""
    network = {"nic": "ib0", "mtu": 2044, "custom": {"ipoib_mode": "connected"}}
    text = json.dumps(network)
    write("/var/lib/vdsm/staging/netconf/nets/storage", text)(host)


def said_of_open_run(host: Any) -> str:
    try:
        refuse_while_open(Journal(host.root).ledger(), may_end=is_live)
    except Refused as refused:
        return f"{refused} ({refused.fix})"
    return ""


STATUS = "host/services/enablement.py"
LOAD = "ovirt-rdma-host policy load"
APPLY, REVERT, CONFIRM, PLAN, ENABLE, DISABLE = (
    f"ovirt-rdma-host {verb}"
    for verb in ("apply", "revert", "confirm", "plan", "enable", "disable")
)
MODULES = "version: 1\nhost: {modules: [mlx4_en]}\n"
WITHOUT = "version: 1\n"
# Rules that warn on the fake host.
WARNED = "--skip MODULE-01 --skip IPOIB-PROFILE-01"


def interface(match: str, *settings: str) -> str:
    """Return a policy with one rule for interfaces."""
    rule = ", ".join((f"match: {match}", *settings))
    return f"version: 1\nhost: {{interfaces: [{{{rule}}}]}}\n"


FOLLOWING = interface("{link_layer: infiniband}", "partitions: follow")
SMALL_MTU = interface("{link_layer: infiniband}", "mtu: 1500")
CONNECTED = interface("{port: 1}", "transport_mode: connected")

UNCONFIRMED = all_of(follow(POLICY), run("apply --confirm-timeout 60"))
INTERRUPTED = all_of(follow(POLICY), killed_apply)

HYPERVISOR = {
    "no policy, mode vdsmd": Row(
        fixed(f"{STATUS}:_policy", LOAD), "status", run("enable")
    ),
    "no policy, mode host": Row(
        fixed(f"{STATUS}:_policy", LOAD), "status", run("enable --mode host")
    ),
    "no copy of the policy": Row(
        fixed(f"{STATUS}:_load_from", LOAD),
        "status",
        all_of(run("policy load"), remove(POLICY_COPY)),
    ),
    "damaged policy": Row(
        fixed("host/policy/store.py:read", LOAD),
        "status",
        all_of(run("policy load", "enable"), write(POLICY_JSON, "{")),
    ),
    "half enabled": Row(
        fixed(f"{STATUS}:_launcher", "ovirt-rdma-host enable --mode vdsmd"),
        "status",
        all_of(run("enable"), remove(DROPIN_LINK)),
    ),
    "two drop-ins": Row(
        fixed(f"{STATUS}:_obstacles", DISABLE),
        "status",
        all_of(
            run("enable"),
            write(
                "/etc/systemd/system/vdsmd.service.d/x.conf",
                "[Service]\nExecStart=\nExecStart=/bin/true\n",
            ),
        ),
    ),
    "no VDSM": Row(
        fixed(f"{STATUS}:vdsm_advice", DISABLE),
        "status",
        all_of(run("enable"), remove(STOCK_VDSMD)),
    ),
    "another mode": Row(
        fixed(
            "host/services/enablement.py:plan_enable",
            DISABLE,
            "ovirt-rdma-host enable --mode 1",
        ),
        "enable --mode host",
        run("enable"),
    ),
    "apply without a policy": Row(
        fixed("host/changes/run.py:loaded_policy", LOAD), "apply"
    ),
    "a step of the plan": Row(
        fixed("cli/host/check.py:_with_steps", PLAN),
        "check --all",
        follow(FOLLOWING),
        "follow-partitions does not allow it",
        then=True,
    ),
    "children that follow no more": Row(
        fixed("host/rules/ipoib.py:_follower", f"{REVERT} 1/host"),
        "check --all",
        all_of(follow(FOLLOWING), run("apply"), follow(WITHOUT)),
    ),
    "module that is not loaded": Row(
        fixed("host/rules/modules.py:_wanted", PLAN),
        "check --all",
        follow(MODULES),
        "mlx4_en is not loaded",
        then=True,
    ),
    "module that nobody wants": Row(
        fixed("host/rules/modules.py:_no_longer", f"{REVERT} 1/boot"),
        "check --all",
        all_of(follow(MODULES), run("apply"), follow(WITHOUT)),
    ),
    "module option that is not set": Row(
        fixed("host/rules/modules.py:_option_finding", PLAN),
        "check --all",
        follow(POLICY),
        "nothing sets mlx4_core log_mtts_per_seg",
        then=True,
    ),
    "module option that nobody wants": Row(
        fixed("host/rules/modules.py:_no_longer", f"{REVERT} 1/boot"),
        "check --all",
        all_of(follow(POLICY), run("apply"), follow(WITHOUT)),
    ),
    "run to be confirmed": Row(
        fixed("cli/host/status.py:change_advice", CONFIRM), "status", UNCONFIRMED
    ),
    "run to be confirmed, apply again": Row(
        fixed("cli/host/plan.py:_print_applied", CONFIRM), "apply", UNCONFIRMED
    ),
    "confirm before other changes": Row(
        fixed("host/changes/journal.py:refuse_while_open", CONFIRM),
        "revert MODOPT-02/boot",
        UNCONFIRMED,
    ),
    "undo before other changes": Row(
        fixed("host/changes/journal.py:refuse_while_open", REVERT),
        "apply",
        all_of(UNCONFIRMED, follow(MODULES)),
    ),
    "confirmed too late": Row(
        fixed("cli/host/plan.py:_refuse_late", APPLY),
        "confirm",
        all_of(UNCONFIRMED, run("unit unconfirmed 1")),
    ),
    "links that were in use": Row(
        fixed("cli/host/plan.py:_print_applied", APPLY),
        "apply --live-only",
        all_of(follow(POLICY), mounted),
        first=unmounted,
    ),
    "interrupted run, apply": Row(
        fixed("cli/host/status.py:change_advice", APPLY), "status", INTERRUPTED
    ),
    "interrupted run, revert": Row(
        fixed("cli/host/status.py:change_advice", REVERT), "status", INTERRUPTED
    ),
    "interrupted run with users, maintenance": Row(
        fixed("host/changes/run.py:HostRun.recover", APPLY),
        "confirm",
        all_of(INTERRUPTED, mounted),
        first=unmounted,
    ),
    "interrupted run with users, allowed": Row(
        fixed("host/changes/run.py:HostRun.recover", f"{APPLY} --allow-link-down"),
        "confirm",
        all_of(INTERRUPTED, mounted),
    ),
    "plan of another day": Row(
        fixed("host/changes/run.py:Decided.hold_against", f"{PLAN} --out 1"),
        "apply {root}/plan.json",
        all_of(
            follow(POLICY),
            run("plan --out {root}/plan.json"),
            lambda host: host.fake.write("/sys/class/net/ib0/mtu", "1500"),
        ),
    ),
    "policy to be loaded": Row(
        fixed("cli/host/check.py:_next", LOAD), f"check {WARNED}"
    ),
    "policy of another file": Row(
        fixed("cli/host/check.py:_next", f"{LOAD} 1"),
        f"check --policy {{root}}/p.yaml {WARNED}",
        write("/p.yaml", SMALL),
    ),
    "no copy of the policy, of another file": Row(
        fixed(f"{STATUS}:_load_from", f"{LOAD} 1"),
        "status",
        all_of(
            write("/p.yaml", POLICY),
            run("policy load {root}/p.yaml"),
            remove(POLICY_COPY),
        ),
    ),
    "policy.json damaged, of another file": Row(
        fixed(f"{STATUS}:read_status", LOAD),
        "status",
        all_of(
            write("/p.yaml", POLICY),
            run("policy load {root}/p.yaml"),
            write(POLICY_JSON, "{"),
        ),
    ),
    "SELinux": Row(
        fixed(f"{STATUS}:selinux_advice", DISABLE),
        "status",
        all_of(run("enable"), other_selinux_domain),
        first=vdsmd_of(STOCK_VDSMD, VIRTD),
    ),
    "step that others need": Row(
        fixed("host/changes/undo.py:Undo._plan_property", REVERT),
        "revert IPOIB-MTU-01/ib0",
        all_of(follow(SMALL_MTU), run("apply"), follow(POLICY), run("apply")),
    ),
    "mode that a network asks for": Row(
        fixed("host/rules/ipoib_rules.py:_without_policy", LOAD, APPLY),
        "check --all",
        network_with_mode,
        first=write(POLICY_YAML, CONNECTED),
    ),
    "MTU of InfiniBand": Row(
        fixed("host/rules/ipoib_rules.py:_compare", PLAN),
        "check --all",
        all_of(
            larger_group,
            follow(interface("{link_layer: infiniband, port: 1}", "mtu: 4092")),
        ),
        "ib0 has MTU 2044 in datagram mode",
        then=True,
    ),
    "package that is erased": Row(
        fixed("host/services/package_scripts.py:_left", REVERT),
        "unit erased",
        all_of(follow(POLICY), run("apply")),
    ),
    "hook and daemon, interrupted run": Row(
        fixed("host/changes/journal.py:refuse_while_open", APPLY),
        said_of_open_run,
        INTERRUPTED,
    ),
}


ROCE = {
    "TSO of Ethernet": Row(
        fixed("cli/host/check.py:_with_steps", PLAN),
        "check --all",
        follow(interface("{device: rxe0}", "tso: off")),
        "is on, but should be off",
        then=True,
    ),
    "type of service": Row(
        fixed("cli/host/check.py:_with_steps", PLAN),
        "check --all",
        follow(interface("{device: rxe0}", "roce: {priority: 3}")),
        "begin at rxe0/1 is unknown",
        then=True,
    ),
}
# mlx5 with data center bridging.
LOSSLESS = {
    "lossless class": Row(
        fixed("cli/host/check.py:_with_steps", PLAN),
        "check --all",
        follow(interface("{device: mlx5_bond_0}", "roce: {priority: 3}")),
        "the policy's lossless class needs pfc 3",
        then=True,
    ),
}


def subnet(host: Any) -> None:
    """Give the host's port a fabric with one other port."""
    host.fabric = SubnetManagers(host.fake, host.root / PARTITIONS[1:], [OTHER_PORT])
    host.fake.write(f"{PORT}/state", "2: INIT")
    host.fake.write(f"{PORT}/lid", "0x0")
    host.fake.write(PARTITIONS, "Default=0x7fff, ipoib : ALL=full;")


def opensm_runs(host: Any) -> None:
    """Run an opensm that gives the port its P_Keys too."""
    read = host.fabric.read

    def sweep() -> None:
        read()
        for entry, pkey in enumerate(sorted(host.fabric.table(OWN), reverse=True)):
            host.fake.write(f"{PORT}/pkeys/{entry}", f"{pkey:#06x}")

    host.fabric.read = sweep
    host.fabric.run(OWN, 0)
    host.fabric.install(host.fake)


def fabric(*lines: str) -> str:
    """Return a policy for the fabric of two ports."""
    hosts = f"hosts: {{hv1: [{OWN}], hv2: [{OTHER_PORT}]}}"
    return "\n  ".join(("version: 1\nfabric:", hosts, *lines)) + "\n"


PARTITIONS = "/etc/rdma/partitions.conf"
OTHER_PORT = "0x0002c90300fb1241"
MANAGER = "subnet_managers: {hv1: {priority: 14}}"
STORAGE = "partitions: {storage: {pkey: 0x8001, members: [hv1, hv2]}}"
SM = "ovirt-rdma-host fabric sm"
WRITE_PARTITIONS = "ovirt-rdma-host fabric partitions apply"
FABRIC = {
    "subnet manager that is not running": Row(
        fixed("host/fabric/decisions.py:_of_our_opensm", f"{SM} enable"),
        "fabric check",
        follow(fabric(MANAGER)),
    ),
    "subnet manager that nobody wants": Row(
        fixed("host/fabric/decisions.py:_of_our_opensm", f"{SM} disable"),
        "fabric check",
        all_of(
            follow(fabric(MANAGER)),
            run("fabric sm enable"),
            follow(fabric()),
        ),
    ),
    "partitions that differ": Row(
        fixed(
            "host/services/opensm.py:OpensmRun._partitions_wrong",
            WRITE_PARTITIONS,
        ),
        "fabric sm enable",
        follow(fabric(MANAGER, STORAGE)),
    ),
    "partitions that opensm has not": Row(
        fixed("host/fabric/decisions.py:_partitions", WRITE_PARTITIONS),
        "fabric check",
        all_of(opensm_runs, follow(fabric(STORAGE))),
    ),
}


TARGET = f"name: array, id_ext: {GUID}, ioc_guid: {GUID}, dest: 10.0.0.1:5555"
LOGIN = "ovirt-rdma-host block login"
BLOCK = {
    "target that is not logged in": Row(
        fixed("host/block/logins.py:findings", LOGIN),
        "block check",
        follow(f"version: 1\nblock: {{srp: [{{{TARGET}}}]}}\n"),
    ),
    "timeout of a target": Row(
        fixed("host/block/logins.py:findings", LOGIN),
        "block check",
        all_of(
            follow(f"version: 1\nblock: {{srp: [{{{TARGET}}}]}}\n"),
            run("block login"),
            follow(
                f"version: 1\nblock: {{srp: [{{{TARGET}, fast_io_fail_tmo: 5}}]}}\n"
            ),
        ),
    ),
    "session that may be another target's": Row(
        fixed("host/block/sessions.py:leaving_sessions", LOGIN),
        "block logout other",
        all_of(
            follow(f"version: 1\nblock: {{srp: [{{{TARGET}}}]}}\n"),
            run("block login"),
            remove(BLOCK_SESSIONS_JSON),
            follow(
                f"version: 1\nblock: {{srp: [{{{TARGET}}}, "
                f"{{{TARGET.replace('array', 'other')}, initiator_ext: {GUID}}}]}}\n"
            ),
        ),
    ),
}
