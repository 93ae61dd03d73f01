# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.command_line import Result, run
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx3_ib, connectx5_roce, soft_roce
from support.fakes.fake_timers import Timers
from support.host.changes_wanted import POLICY
from support.storage.fake_network import FakeNetwork
from support.storage.vdsm_fixtures import loaded_vdsm

from ovirt_rdma.cli.host import check, nfs, runs
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.model import to_json as facts_file_of
from ovirt_rdma.host.paths import under
from ovirt_rdma.host.rules import registry
from ovirt_rdma.host.rules.base import Rule
from ovirt_rdma.storage.health.state import HealthState, MountHealth
from ovirt_rdma.storage.readiness import ProbeContext

__all__ = ["loaded_vdsm"]


@pytest.fixture
def host(tmp_path, capsys):
    """Run ovirt-rdma-host below a root that has only a table of no mounts."""
    mountinfo = tmp_path / "proc/self/mountinfo"
    mountinfo.parent.mkdir(parents=True)
    mountinfo.touch()

    def on_host(*words: str) -> Result:
        return run(capsys, *words, "--root", str(tmp_path))

    on_host.root = tmp_path
    return on_host


@pytest.fixture
def sampled(tmp_path, capsys, monkeypatch):
    """Run ovirt-rdma-host on a host with Soft-RoCE, with these rules only."""
    root = soft_roce(tmp_path)

    def with_rules(*rules: Rule):
        monkeypatch.setattr(registry, "RULES", rules)

        def on_host(*words: str) -> Result:
            return run(capsys, *words, "--root", str(root.path))

        on_host.root = root.path
        return on_host

    return with_rules


@pytest.fixture
def changeable(tmp_path, capsys, monkeypatch):
    """Run ovirt-rdma-host on a host with a ConnectX-3 that can be changed."""
    return changing_host(connectx3_ib, tmp_path, capsys, monkeypatch)


@pytest.fixture
def soft_roce_host(tmp_path, capsys, monkeypatch):
    """Run ovirt-rdma-host on a host with Soft-RoCE that can be changed."""
    return changing_host(soft_roce, tmp_path, capsys, monkeypatch)


@pytest.fixture
def mlx5_roce_host(tmp_path, capsys, monkeypatch):
    """Run ovirt-rdma-host on a host with RoCE on mlx5 that can be changed."""
    host = changing_host(connectx5_roce, tmp_path, capsys, monkeypatch)
    for netdev in ("ens1f0np0", "ens1f1np1"):
        host.fake.dcb(netdev)
        host.fake.pause(netdev, rx=False, tx=False)
    return host


def changing_host(make, tmp_path, capsys, monkeypatch):
    """Return what runs ovirt-rdma-host on a host of ``fake_hosts``.

    systemd is running, NetworkManager is not. ``fake`` is the host, ``timers`` has the
    timers of systemd.
    """
    fake = changing(make, tmp_path)
    fake.unit("rdma-ndd.service")
    fake.systemd()
    timers = Timers()
    systemctl = fake.runner.programs["systemctl"]
    fake.runner.program(
        "systemctl",
        lambda argv: (timers.stop if argv[1] == "stop" else systemctl)(argv),
    )
    fake.runner.program("systemd-run", timers.systemd_run)
    monkeypatch.setattr(runs, "TOOLS", fake.run)
    monkeypatch.setattr(runs, "host_effects", lambda root: fake.effects())
    monkeypatch.setattr(check, "HostReader", lambda root: HostReader(root, fake.run))

    def on_host(*words: str) -> Result:
        return run(capsys, *words, "--root", str(tmp_path))

    def follow(policy: str) -> None:
        file = tmp_path / "p.yaml"
        file.write_text(policy)
        assert on_host("policy", "load", str(file)).code == 0

    on_host.root, on_host.fake, on_host.timers = tmp_path, fake, timers
    on_host.follow = follow
    return on_host


@pytest.fixture
def ready(changeable):
    """A host with a policy that requires three steps."""
    under(changeable.root, "/etc/modprobe.d").mkdir(parents=True, exist_ok=True)
    changeable.follow(POLICY)
    return changeable


@pytest.fixture
def facts_file(tmp_path_factory):
    """Return the name of a facts file of the host hv7."""
    path = tmp_path_factory.mktemp("facts") / "hv7.json"
    path.write_text(facts_file_of(Facts("hv7", "5.14.0", 3600.0)))
    return str(path)


@pytest.fixture
def call(capsys):
    """Run ovirt-rdma-host with exactly these arguments."""
    return lambda *words: run(capsys, *words)


@pytest.fixture
def mounted(host, monkeypatch):
    """Let looks at the health of mounts find these; ``asked`` has the looks."""

    def with_mounts(*mounts: MountHealth, problems: tuple[str, ...] = ()):
        def look(self, policy, export, *, read):
            host.asked.append((export and str(export), read))
            return HealthState(1.0, 1.0, 0.0, mounts, problems)

        host.asked = []
        monkeypatch.setattr(nfs.Looker, "look", look)
        return host

    return with_mounts


@pytest.fixture
def network(host, monkeypatch):
    """The network of a host with Soft-RoCE, for verbs about an export; ``site`` is the
    host.
    """
    fake = FakeNetwork()
    fake.site = soft_roce(host.root)
    monkeypatch.setattr(
        nfs, "ProbeContext", lambda *_: ProbeContext(fake.site.reader(), fake)
    )
    return fake
