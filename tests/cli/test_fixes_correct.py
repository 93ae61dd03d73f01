# SPDX-License-Identifier: GPL-2.0-or-later
"""Each fix that names a command of ours corrects what it stands for.

A row plants the state, runs the command that finds it, takes the fix from its output,
runs that, and sees that the finding is gone. A fix without a row is in WITHOUT_ROW,
with the reason; both together are all fixes of the product.
"""

from __future__ import annotations

from typing import Any

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor, run_role
from support.fakes.fake_block import GUID, FakeBlock
from support.fakes.fake_hosts import soft_roce
from support.fixes.engine import ENGINE, FLEET, NFS1
from support.fixes.hypervisor import (
    APPLY,
    BLOCK,
    DISABLE,
    ENABLE,
    FABRIC,
    HYPERVISOR,
    LOAD,
    LOSSLESS,
    PLAN,
    REVERT,
    ROCE,
    SM,
    SMALL,
    subnet,
)
from support.fixes.rows import fixed, mend, mending

from ovirt_rdma.cli.engine import deploy_hook as deploy_hook_verbs
from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.host.collect import collector
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.paths import (
    DROPIN_SOURCE,
    LAUNCHER,
    POLICY_YAML,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.services import opensm

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]


DISTRIBUTION = {
    LAUNCHER: "packaged\n",
    DROPIN_SOURCE: "packaged\n",
    STOCK_VDSMD: "packaged\n",
}


@pytest.fixture
def hypervisor(changeable):
    """A ConnectX-3 with the package, and a policy.yaml that is not loaded."""
    for path, text in {**DISTRIBUTION, POLICY_YAML: SMALL}.items():
        file = under(changeable.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for path in ("/etc/systemd/system", "/etc/modprobe.d", "/etc/modules-load.d"):
        under(changeable.root, path).mkdir(parents=True, exist_ok=True)
    return changeable


@pytest.mark.parametrize("name", ROCE)
def test_on_a_hypervisor_with_roce(soft_roce_host, name):
    under(soft_roce_host.root, "/etc/ovirt-rdma").mkdir(parents=True)
    mend(soft_roce_host, ROCE[name])


@pytest.mark.parametrize("name", LOSSLESS)
def test_on_a_hypervisor_with_data_center_bridging(mlx5_roce_host, name):
    under(mlx5_roce_host.root, "/etc/ovirt-rdma").mkdir(parents=True)
    mend(mlx5_roce_host, LOSSLESS[name])


@pytest.mark.parametrize("name", FABRIC)
def test_on_a_hypervisor_with_a_subnet_manager(hypervisor, monkeypatch, name):
    for timeout in ("START_TIMEOUT_S", "SWEEP_TIMEOUT_S"):
        monkeypatch.setattr(f"ovirt_rdma.cli.host.fabric.{timeout}", 0.1)
    monkeypatch.setattr(opensm, "_POLL_S", 0.05)
    subnet(hypervisor)
    mend(hypervisor, FABRIC[name])


@pytest.mark.parametrize("name", BLOCK)
def test_on_a_hypervisor_with_block_storage(tmp_path, host, monkeypatch, name):
    fake = FakeBlock(soft_roce(tmp_path))
    fake.local_port("srp-rxe0-1")
    fake.targets = {GUID: [2048]}
    fake.install(monkeypatch)
    mend(host, BLOCK[name])


@pytest.mark.parametrize("name", HYPERVISOR)
def test_on_a_hypervisor(hypervisor, name):
    mend(hypervisor, HYPERVISOR[name])


# The engine's machine


@pytest.fixture
def engine(capsys, tmp_path, monkeypatch):
    """Run ovirt-rdma for three hosts with the add-on; ``host`` runs ovirt-rdma-host on
    none of them.
    """
    world = sample_world(hosts=3, domains=("data1", "data2"), addon=True)
    door = DoubleDoor(world)
    states = StateFolder(tmp_path / "states")
    monkeypatch.setattr(cli_session, "conversion_states", lambda: states)
    (tmp_path / "policy.yaml").write_text(NFS1)
    policy = {"ovirt_rdma_policy_file": str(tmp_path / "policy.yaml")}
    monkeypatch.setattr(deploy_hook, "policy_of_engine", lambda: policy)
    monkeypatch.setattr(deploy_hook, "read_settings", lambda **words: {})
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))
    monkeypatch.setattr(deploy_hook, "check_syntax", lambda content, beside: None)
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "no-such-user")
    for module in (deploy_hook, deploy_hook_verbs):
        monkeypatch.setattr(module, "POST_TASKS", str(tmp_path / "tasks.yml"))
    world.more["post_tasks"] = lambda host: run_role(host, policy)
    with EngineDouble(world) as double:

        def on_engine(*words: str) -> Any:
            return run_engine(capsys, double, door, *words)

        on_engine.root, on_engine.world, on_engine.door = tmp_path, world, door
        on_engine.host = None
        yield on_engine
        assert double.strict_errors == []


@pytest.mark.parametrize("name", ENGINE)
def test_on_the_engines_machine(engine, name):
    mend(engine, ENGINE[name])


# A hypervisor, as the engine's machine sees it


@pytest.fixture
def fleet(hypervisor, capsys, monkeypatch, tmp_path_factory):
    """Run ovirt-rdma for two hosts that report the same, which ``host`` changes."""
    folder = tmp_path_factory.mktemp("reports")
    fake = hypervisor.fake
    monkeypatch.setattr(
        collector,
        "HostReader",
        lambda root, run=None: HostReader(root, run or fake.run),
    )
    with EngineDouble(sample_world(hosts=2, domains=("data1",))) as double:

        def on_engine(*words: str) -> Any:
            policy = under(hypervisor.root, POLICY_YAML).read_text()
            for name in ("host01", "host02"):
                for part in ("facts", "status"):
                    text = hypervisor(part, "-o", "json").out
                    (folder / f"{name}.{part}.json").write_text(text)
                (folder / f"{name}.policy.yaml").write_text(policy)
            words = (*words, "--facts-dir", str(folder))
            return run_engine(capsys, double, None, *words)

        on_engine.root, on_engine.host, on_engine.fake = (
            hypervisor.root,
            hypervisor,
            fake,
        )
        on_engine.world = double.world
        yield on_engine
        assert double.strict_errors == []


@pytest.mark.parametrize("name", FLEET)
def test_on_the_engines_machine_for_a_hypervisor(fleet, name):
    mend(fleet, FLEET[name])


# What has no row

WITHOUT_ROW = {
    "it names the verb of a run or a step, in journals and messages": [
        *fixed("host/fabric/decisions.py:_step", f"{SM} disable"),
    ],
    "a comment in a file of ours": [
        *fixed("host/changes/kinds/profile.py:text_of", REVERT),
        *fixed("host/services/enablement.py:marker_text", ENABLE, DISABLE),
        *fixed("host/services/enablement.py:read_state", ENABLE, DISABLE),
        *fixed("host/services/enablement.py:_carry_out", ENABLE, DISABLE),
    ],
    "nothing is wrong, or will be corrected": [
        *fixed(
            "cli/engine/deploy_hook.py:_ChangesFile.run", "ovirt-rdma hosts prepare"
        ),
        *fixed("host/services/hook_runs.py:_notes", APPLY),
    ],
    "in the log of vdsmd, while it starts: tests/storage/vdsm": [
        *fixed("storage/vdsm/connection.py:UnknownShape.__init__", DISABLE),
        *fixed("storage/vdsm/launch.py:_check_enabled", ENABLE),
    ],
    "systemd runs the daemon: tests/lab/test_daemon_lab.py": [
        *fixed("cli/host/daemon.py:_print", LOAD),
        *fixed("cli/host/daemon.py:ShowDaemon.run", ENABLE),
        *fixed("host/rules/host.py:_daemon", ENABLE),
    ],
    "virtual functions: tests/lab/test_virtual_functions_lab.py": [
        *fixed("engine_sdk_tools/fleet/check.py:with_shared_guids", APPLY),
        *fixed("host/rules/virtual_functions.py:_outcomes", APPLY),
        *fixed("host/rules/virtual_functions.py:_no_number", REVERT),
    ],
    "between two looks of one run: tests/host/changes/test_runs.py": [
        *fixed("host/changes/run.py:_check", PLAN),
        *fixed("host/changes/run.py:_read", PLAN),
        *fixed("host/changes/run.py:_refuse_foreign", PLAN),
    ],
    "two ports of the host in one fabric: tests/cli/host/test_fabric_sm.py": [
        *fixed("host/fabric/decisions.py:_beside", f"{SM} disable"),
    ],
    "the hosts of the engine's double do not carry out plans: tests/engine": [
        *fixed(
            "cli/engine/hosts.py:show_result",
            "ovirt-rdma hosts prepare 1 --by reinstall",
        ),
        *fixed("engine_sdk_tools/conversion/next_step.py:_somebody_elses", LOAD),
    ],
    "to copy in the portal, where nothing has to be wrong: tests/engine/report": [
        *fixed(
            "engine_sdk_tools/report/page.py:_domain",
            "ovirt-rdma domain heal 1 --dry-run",
            "ovirt-rdma domain convert 1 --to 1 --rolling --dry-run",
            "ovirt-rdma domain revert 1 --dry-run",
        ),
    ],
    "this host has one port: tests/cli/host/test_fabric_check.py": fixed(
        "host/fabric/decisions.py:_without_our_opensm",
        "ovirt-rdma-host fabric sm enable",
    ),
    "a step of a child that was made: tests/host/changes/test_revert.py": fixed(
        "host/changes/undo.py:Undo._refuse_without", "ovirt-rdma-host revert"
    ),
    "it asks for a password and a CA: tests/cli/engine/test_login_verb.py": [
        *fixed(
            "engine_sdk_tools/api/request.py:of_curl", "ovirt-rdma login --fetch-ca"
        ),
        *fixed("engine_sdk_tools/api/auth.py:from_sources", "ovirt-rdma login"),
        *fixed("engine_sdk_tools/api/auth.py:_section", "ovirt-rdma login"),
    ],
}


def test_each_fix_is_tried_or_has_a_reason_not_to_be():
    every = {fix for fix, _ in mending()}
    tables = (HYPERVISOR, ROCE, LOSSLESS, FABRIC, BLOCK, ENGINE, FLEET)
    tried = {fix for table in tables for row in table.values() for fix in row.fixes}
    left = {fix for fixes in WITHOUT_ROW.values() for fix in fixes}
    assert tried & left == set()
    assert every - tried - left == set(), "a fix without a row, and without a reason"
    assert (tried | left) - every == set(), "no such fix"
