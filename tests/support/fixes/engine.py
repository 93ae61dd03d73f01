# SPDX-License-Identifier: GPL-2.0-or-later
"""The fixes of ovirt-rdma, and those for a host that it shows."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.host.paths import (
    POLICY_YAML,
)
from support.engine.host_deploy import make_collection
from support.fixes.hypervisor import (
    APPLY,
    ENABLE,
    LOAD,
    SMALL,
    WITHOUT,
)
from support.fixes.rows import Row, all_of, fixed, follow, run, write
from support.host.changes_wanted import POLICY

EXPORT = "nfs1.example.com:/exports/data1"
MOUNTED = "/rhev/data-center/mnt/nfs1.example.com:_exports_data1"
PREFER = (
    "version: 1\nnfs:\n  rules:\n"
    "    - {server: nfs1.example.com, transport: prefer-rdma}\n"
)
NFS1 = "version: 1\nnfs: {rules: [{server: nfs1.example.com, transport: tcp}]}\n"
CONVERT = "domain convert data1 --to rdma --rolling -y"


def degraded(site: Any) -> None:
    """Two hosts fell back to TCP."""
    for host in site.world.hosts.values():
        host.policy_text = PREFER
        host.mounts[EXPORT] = "tcp" if host.name != "host02" else "rdma"
        host.mounts.pop(EXPORT.replace("data1", "data2"), None)
    del site.world.domains[site.world.domain("data2").id]


def cut(site: Any, command: str) -> Any:
    """Run a command, and interrupt it at its first activation."""
    perform = Session.perform

    def interrupted(self: Any, call: Any, **words: Any) -> Any:
        if call.method == "activate":
            raise KeyboardInterrupt
        return perform(self, call, **words)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "perform", interrupted)
        return site(*shlex.split(command))


def cut_off(command: str) -> Callable[[Any], None]:
    def do(site: Any) -> None:
        assert cut(site, command).code == 130

    return do


def other_server(site: Any) -> None:
    """Let data2 have a server of its own."""
    site.world.connection_of("data2").address = "nfs2.example.com"
    for host in site.world.hosts.values():
        old = host.mounts.pop(EXPORT.replace("data1", "data2"))
        host.mounts["nfs2.example.com:/exports/data2"] = old


def forget(site: Any) -> None:
    """Remove what this machine knows of conversions."""
    for path in (site.root / "states").glob("*.json"):
        path.unlink()


def all_over_tcp(site: Any) -> None:
    """All rules prefer RDMA, and all mounts are over TCP."""
    for host in site.world.hosts.values():
        host.policy_text = PREFER
        host.mounts = dict.fromkeys(host.mounts, "tcp")


def network_without_cluster(site: Any) -> None:
    """Make a network, and take it out of its cluster."""
    run("network create storage --datacenter dc1 --mtu 2044 -y --no-job")(site)
    site.world.cluster("cl1").networks.clear()


def post_tasks_here(site: Any) -> None:
    """Let this be an engine's machine with our collection, without the block."""
    make_collection(site.root / "collections")


PREPARE = "hosts prepare host02 --by reinstall -y"
with_block = all_of(post_tasks_here, run("deploy-hook install"))
LOCK = "engine_sdk_tools/conversion/plan.py"
PREPARATION = "engine_sdk_tools/fleet/preparation.py"
POST_TASKS = "engine_sdk_tools/hosts/deploy_hook.py"
HOOK = "ovirt-rdma deploy-hook"
PUSH = "ovirt-rdma policy push 1 --hosts 1"
OTHER = CONVERT.replace("data1", "data2")
ENGINE = {
    "domain that fell back": Row(
        fixed(
            "engine_sdk_tools/domains/transport.py:_remount_fix",
            "ovirt-rdma domain heal 1",
        ),
        "domain verify",
        degraded,
        options="-y",
    ),
    "interrupted conversion, completed": Row(
        fixed(f"{LOCK}:command_of", "ovirt-rdma domain convert 1 --to 1"),
        OTHER,
        all_of(other_server, cut_off(CONVERT)),
        options="-y",
    ),
    "interrupted conversion, reverted": Row(
        fixed(f"{LOCK}:revert_command_of", "ovirt-rdma domain revert 1"),
        OTHER,
        all_of(other_server, run(CONVERT), cut_off("domain revert data1 -y")),
        options="-y",
    ),
    "interrupted heal": Row(
        fixed(f"{LOCK}:command_of", "ovirt-rdma domain heal 1"),
        "domain convert data1 --to tcp --rolling -y",
        all_of(degraded, cut_off("domain heal data1 -y")),
        options="-y",
    ),
    "conversion that nobody recorded": Row(
        fixed(
            "engine_sdk_tools/automation/__init__.py:RdmaEngine.revert",
            "ovirt-rdma domain convert 1 --to tcp --rolling",
        ),
        "domain revert data1 -y",
        all_of(other_server, run(CONVERT), forget),
        options="-y",
    ),
    "domain that exists, over TCP": Row(
        fixed(
            "engine_sdk_tools/domains/create.py:existing_domain",
            "ovirt-rdma domain convert 1 --to 1",
        ),
        f"domain create data1 --datacenter dc1 --export {EXPORT} -y",
        other_server,
        options="-y",
    ),
    "connection that domains share": Row(
        fixed(
            "engine_sdk_tools/domains/transport.py:_shared_fix",
            "ovirt-rdma domain convert 1 --to 1 --rolling",
        ),
        "domain create new --datacenter dc1 --export nfs1.example.com:/exports/new -y",
        options="-y",
    ),
    "connection that domains share, to be healed": Row(
        fixed(
            "engine_sdk_tools/domains/transport.py:_shared_fix",
            "ovirt-rdma domain heal 1",
        ),
        "domain create new --datacenter dc1 --export nfs1.example.com:/exports/new -y",
        all_over_tcp,
        options="-y",
    ),
    "network that is not in the cluster": Row(
        fixed(
            "engine_sdk_tools/networks/attach.py:host_refusals",
            "ovirt-rdma network create 1 --datacenter 11 --mtu 1",
        ),
        "network attach storage --hosts host01 --nic-match ib0 --dry-run "
        "--addresses 10.20.0.11/24",
        network_without_cluster,
        options="-y",
    ),
    "interrupted preparation": Row(
        fixed(f"{PREPARATION}:command_of", "ovirt-rdma hosts prepare 11"),
        CONVERT,
        all_of(with_block, cut_off(PREPARE)),
        options="-y",
    ),
    "preparation that is interrupted": Row(
        fixed(f"{PREPARATION}:command_of", "ovirt-rdma hosts prepare 11"),
        lambda site: cut(site, PREPARE).err,
        with_block,
        options="-y",
    ),
    "no block for the hosts to be installed": Row(
        fixed(f"{POST_TASKS}:block_problem", f"{HOOK} install"),
        PREPARE,
        post_tasks_here,
    ),
    "block that is missing": Row(
        fixed("cli/engine/deploy_hook.py:Status.run", f"{HOOK} install 1"),
        "deploy-hook status --file {root}/tasks.yml",
        post_tasks_here,
    ),
    "policy that differs": Row(
        fixed("engine_sdk_tools/fleet/policy_push.py:compare.drift", PUSH),
        "policy diff {root}/policy.yaml",
        options="-y",
    ),
    "policy that is not this machine's": Row(
        fixed("engine_sdk_tools/fleet/check.py:_policy_cell", PUSH),
        "hosts check --policy {root}/policy.yaml",
        options="-y",
    ),
}


def on_host(step: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda site: step(site.host)


CELLS = "engine_sdk_tools/fleet/check.py"
ENABLE_NOW = f"{ENABLE} --restart-vdsmd"
FLEET = {
    "add-on that is off": Row(
        fixed(f"{CELLS}:enabled_cell", ENABLE_NOW), "hosts check"
    ),
    "rules that fail": Row(
        fixed(f"{CELLS}:rules_cell", APPLY),
        "hosts check",
        on_host(all_of(follow(POLICY), run("enable"))),
    ),
    "policy.yaml that is not loaded": Row(
        fixed("engine_sdk_tools/fleet/policy_push.py:compare.drift", LOAD),
        "policy diff {root}/etc/ovirt-rdma/policy.yaml",
        on_host(all_of(follow(WITHOUT), write(POLICY_YAML, SMALL))),
    ),
    "add-on that is off, at a domain": Row(
        fixed("engine_sdk_tools/domains/transport.py:_remount_fix", ENABLE_NOW),
        "domain verify",
        on_host(
            all_of(
                follow(PREFER),
                lambda host: host.fake.nfs_mount(EXPORT, MOUNTED),
            )
        ),
    ),
    "conversion without the add-on": Row(
        fixed(
            "engine_sdk_tools/conversion/fleet.py:ReportedHost.objections",
            ENABLE,
        ),
        f"{CONVERT} --dry-run",
    ),
    "conversion with a draft": Row(
        fixed("engine_sdk_tools/conversion/fleet.py:ReportedHost._with_policy", LOAD),
        f"{CONVERT} --dry-run",
        on_host(run("enable")),
    ),
}
