# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the role ``prepare`` with real Ansible over real SSH, and the real command.

What the engine makes of the tasks is decided by a double of its parser
(tests/support/engine/host_deploy_events.py).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from role_site import COMMAND, Hypervisor, Run, Site
from support.engine.host_deploy_events import ERROR, NORMAL, WARNING
from support.fakes.fake_hosts import connectx3_ib, without_rdma

from lab import sshd
from ovirt_rdma.host import __version__

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="an sshd with a namespace of its own needs root"
)

POLICY = """\
version: 1
host:
  module_options:
    mlx4_core: {log_mtts_per_seg: 5}
"""
DISRUPTIVE = """\
version: 1
host:
  interfaces:
    - match: {link_layer: infiniband}
      transport_mode: connected
"""
BROKEN = "version: 1\nnfs: 3\n"
OLD = "echo ovirt-rdma-host 0.0.9"
SENTINEL = f"host is prepared (ovirt-rdma {__version__}, policy sha256:"


def in_use(root: Path) -> None:
    """Make a host with a session to an SRP target over ib0."""
    connectx3_ib(root).srp_session(3, "mlx4_0")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    top = tmp_path_factory.mktemp("role")
    package = sshd.fetched()
    key, authorized = sshd.key_pair(top)
    with ExitStack() as stack:
        started = 0

        def start(search_path: str) -> sshd.Sshd:
            nonlocal started
            started += 1
            folder = top / f"sshd{started}"
            run = sshd.running(package, folder, authorized, search_path)
            return stack.enter_context(run)

        yield Site(top, start, str(key))


@pytest.fixture(scope="module")
def policies(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("policies")
    template = DISRUPTIVE.replace("connected", "{{ wanted_mode }}")
    texts = {"good": POLICY, "used": DISRUPTIVE, "broken": BROKEN, "j2": template}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


def full(host: Hypervisor) -> None:
    """Leave no space for another file in the folder of the host's policy."""
    host.policy.parent.mkdir()
    inside = ["nsenter", "-m", "-t", host.there.root.parent.name]
    options = ["-t", "tmpfs", "-o", "size=4k,nr_inodes=9", "lab", "/etc/ovirt-rdma"]
    subprocess.run([*inside, "mount", *options], check=True)
    (host.policy.parent / "full").write_bytes(b"x" * 4096)


def killed_once(host: Hypervisor) -> None:
    """Let the next ``policy load`` be killed, after the new file was placed."""
    program, once = host.programs / "ovirt-rdma-host", host.root / "once"
    first = f'[ "$1 $2" != "policy load" ] || [ -e {once} ]'
    text = program.read_text()
    program.write_text(
        text.replace("exec ", f"{first} || {{ touch {once}; kill -9 $$; }}\nexec ")
    )


def with_timer(host: Hypervisor) -> None:
    """Let apply await a confirmation, which needs systemd; record what is asked."""
    program, asked = host.programs / "ovirt-rdma-host", host.root / "asked"
    awaiting = 's/"confirm_by": null/"confirm_by": 1900000000/'
    program.write_text(
        f"""#!/bin/sh
case "$1" in
apply)
    echo "$*" >>{asked}
    {COMMAND} apply -o json --root {host.root} | sed '{awaiting}'
    exit
    ;;
confirm) echo "$*" >>{asked} ;;
esac
exec {COMMAND} "$@" --root {host.root}
"""
    )


@pytest.fixture(scope="module")
def fleet(site, policies) -> dict[str, Hypervisor]:
    """A host on which the role works, and one host per fault."""

    def host(name: str, hardware: Any = connectx3_ib, **more: Any) -> Hypervisor:
        policy = policies.get(name, policies["good"])
        return site.hypervisor(name, hardware, ovirt_rdma_policy_file=policy, **more)

    template = f"{{{{ lookup('ansible.builtin.template', '{policies['j2']}') }}}}"
    hosts = [
        host("hv"),
        host("bare", without_rdma),
        host("lacking", command=None),
        host("old", command=OLD),
        host("broken"),
        host("full"),
        host("used", in_use, ovirt_rdma_policy=template, wanted_mode="connected"),
        host("killed"),
        host("confirmed", ovirt_rdma_policy=yaml.safe_load(POLICY)),
    ]
    found = {host.name: host for host in hosts}
    (found["lacking"].there.root / "etc/dnf-has").write_text("other")
    full(found["full"])
    killed_once(found["killed"])
    with_timer(found["confirmed"])
    found["confirmed"].variables |= {
        "ovirt_rdma_confirm_timeout": 120,
        "ovirt_rdma_policy_file": policies["broken"],
    }
    used = found["used"].policy
    used.parent.mkdir()
    used.write_text(POLICY)
    return found


@pytest.fixture(scope="module")
def deployed(site, fleet) -> Run:
    """A run on one host, as the engine makes it."""
    return site.run(fleet["hv"], ovirt_rdma_on_failure="report")


def test_host_deploy_prepares_a_host_and_says_so_in_events(fleet, deployed):
    host = fleet["hv"]
    assert deployed.of(host).failure == ""
    *steps, (severity, last) = deployed.ours(host)
    assert [text for level, text in steps if level == NORMAL] == [
        "check the settings",
        "install the package",
        "look for RDMA hardware",
        "place and load the policy",
        "apply the policy",
        "let VDSM use the policy",
        "check the host",
    ]
    assert (severity, last[: len(SENTINEL)]) == (NORMAL, SENTINEL)
    status = host.status()
    assert last.endswith(f", policy {status['policy']['digest']})")
    assert status["enabled"]["mode"] == "vdsmd"
    assert status["changes"]["held"] == ["MODOPT-02/boot"]
    assert host.policy.read_text() == POLICY
    ((severity, text),) = [step for step in steps if step[0] != NORMAL]
    # What a real host has, and a fake root has not.
    assert (severity, text[:11]) == (WARNING, "attention: ")
    assert "ethtool -k * was not run" in text


def test_the_event_of_a_failure_has_its_sentence(site, fleet):
    host = fleet["old"]
    run = site.run(host, ovirt_rdma_on_failure="report")
    assert run.of(host).failure == ""
    assert run.ours(host)[-1] == (ERROR, f"host is not prepared: {SENTENCES['old']}")


@pytest.fixture(scope="module")
def reported(site, fleet) -> Run:
    """A run on all other hosts, without failed tasks."""
    others = [host for name, host in fleet.items() if name != "hv"]
    return site.run(*others, ovirt_rdma_on_failure="report")


SENTENCES = {
    "lacking": (
        "ovirt-rdma-host cannot be installed: No package ovirt-rdma-host available; "
        "fix: enable the repository of ovirt-rdma on the host, or install from RPM "
        "files"
    ),
    "old": (
        "ovirt-rdma-host 0.0.9 on this host is older than 0.2.0, which this collection "
        "needs; fix: update the package ovirt-rdma-host on the host"
    ),
    "broken": "is invalid: line 2: nfs: must be a mapping",
    "full": (
        "/etc/ovirt-rdma/policy.yaml cannot be written: No space left on device; fix: "
        "look at its folder, the file system and the space on it"
    ),
    "used": "the interfaces are in use; IPOIB-MODE-01/ib0 takes the link down",
    "killed": (
        "ovirt-rdma-host policy failed with exit code -9: it printed nothing; the "
        "earlier /etc/ovirt-rdma/policy.yaml was restored"
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_failure_is_one_event_and_the_installation_continues(fleet, reported, name):
    host = fleet[name]
    assert reported.of(host).failure == ""
    severity, text = reported.last(host)
    assert severity == ERROR
    assert text.startswith("host is not prepared: ")
    assert SENTENCES[name] in text
    assert "\n" not in text
    events = reported.ours(host)
    assert [level for level, _ in events].count(ERROR) == 1
    assert not any(text.startswith("host is prepared") for _, text in events)
    assert host.status()["enabled"]["mode"] is None


def test_without_rdma_hardware_nothing_is_loaded(fleet, reported):
    host = fleet["bare"]
    assert reported.of(host).failure == ""
    assert reported.ours(host)[-1] == (
        NORMAL,
        "host has no RDMA hardware, nothing was loaded",
    )
    assert not host.policy.exists()
    assert host.status()["policy"]["loaded"] is False
    assert host.status()["enabled"]["mode"] is None


def test_changes_are_confirmed_over_a_new_connection(fleet, reported):
    host = fleet["confirmed"]
    asked = (host.root / "asked").read_text().splitlines()
    assert asked == ["apply --confirm-timeout 120 -o json", "confirm -o json"]
    texts = [text for _, text in reported.ours(host)]
    assert "confirm the changes" in texts
    assert reported.last(host)[1].startswith("host is prepared: ")


def test_a_policy_in_a_variable_goes_before_the_file(fleet, reported):
    host = fleet["confirmed"]
    assert yaml.safe_load(host.policy.read_text()) == yaml.safe_load(POLICY)
    assert reported.last(host)[1].startswith("host is prepared: ")


def test_a_refused_run_leaves_the_host(fleet, reported):
    host = fleet["used"]
    assert (host.root / "sys/class/net/ib0/mode").read_text().strip() == "datagram"
    # The policy was valid, so it is loaded; only apply was refused.
    assert host.policy.read_text() == DISRUPTIVE
    (backup,) = host.policy.parent.glob("policy.yaml.*~")
    assert backup.read_text() == POLICY


def test_a_killed_load_leaves_no_policy_that_is_not_loaded(fleet, reported):
    assert list(fleet["killed"].policy.parent.iterdir()) == []


FAILING = ("broken", "bare")


@pytest.fixture(scope="module")
def failing(site, fleet, deployed, reported) -> Run:
    """A second run, as an administrator makes it."""
    hosts = [fleet[name] for name in ("hv", "killed", *FAILING)]
    return site.run(*hosts, words=("--diff",), ovirt_rdma_without_hardware="fail")


def test_a_second_run_changes_nothing(fleet, failing):
    host = fleet["hv"]
    assert failing.changed(host) == []
    assert failing.last(host)[1].startswith("host is prepared: ")


def test_the_next_run_completes_an_interrupted_one(fleet, failing):
    host = fleet["killed"]
    assert failing.last(host)[1].startswith("host is prepared: ")
    assert host.policy.read_text() == POLICY
    assert host.status()["policy"]["loaded"] is True


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_is_one_failed_task_with_a_sentence(fleet, failing, name):
    host = fleet[name]
    ((task, result),) = failing.results(host, "runner_on_failed").items()
    assert (
        SENTENCES.get(name, "has no RDMA device and no RDMA adapter") in result["msg"]
    )
    assert "\n" not in result["msg"]
    assert failing.of(host).failure == f"Task ovirt-rdma: {task} failed to execute."
    assert not {"stdout", "stderr", "module_stdout", "module_stderr"} & set(result)
    assert "Traceback" not in str(result)


def tree_of(*folders: Path) -> dict[str, Any]:
    """Return mode and content of all files."""
    found: dict[str, Any] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            data = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (path.lstat().st_mode, data)
    return found


def test_check_mode_shows_the_plan_and_changes_nothing(site, fleet, failing, policies):
    host = fleet["hv"]
    fresh = site.hypervisor("fresh", connectx3_ib, command=None)
    for one in (host, fresh):
        one.variables["ovirt_rdma_policy_file"] = policies["used"]
    folders = [
        place for one in (host, fresh) for place in (one.root, one.there.root / "etc")
    ]
    before = tree_of(*folders)
    run = site.run(host, fresh, words=("--check", "--diff"))
    assert tree_of(*folders) == before
    done = run.results(host, "runner_on_ok")
    policy = done["place and load the policy"]["diff"]
    assert (policy["before"], policy["after"]) == (POLICY, DISRUPTIVE)
    planned = done["apply the policy"]["diff"]
    assert "IPOIB-MODE-01/ib0: datagram\n" in planned["before"]
    assert "IPOIB-MODE-01/ib0: connected\n" in planned["after"]
    for one in (host, fresh):
        assert run.last(one)[1].startswith("host would be prepared: ")
        assert run.results(one, "runner_on_failed") == {}


@pytest.fixture(scope="module")
def restored(site, fleet, failing) -> dict[str, Run]:
    """Three runs with state "absent": in check mode, for real, and again."""
    hosts = [fleet[name] for name in ("hv", "lacking")]
    more = {"ovirt_rdma_state": "absent", "ovirt_rdma_on_failure": "report"}
    return {
        name: site.run(*hosts, words=words, **more)
        for name, words in (("check", ("--check",)), ("first", ()), ("second", ()))
    }


def test_absent_undoes_all(fleet, restored):
    host, run = fleet["hv"], restored["first"]
    assert run.of(host).failure == ""
    assert [text for level, text in run.ours(host) if level == NORMAL] == [
        "check the settings",
        "look for what must be undone",
        "revert the changes of the host's settings",
        "let VDSM mount as stock",
        "remove the packages",
        "host is restored",
    ]
    assert run.results(host, "runner_on_ok")[
        "revert the changes of the host's settings"
    ]["steps"] == ["MODOPT-02/boot"]
    status = host.status()
    assert (status["enabled"]["mode"], status["changes"]["held"]) == (None, [])
    assert not (host.root / "etc/modprobe.d/ovirt-rdma.conf").exists()
    assert (host.there.root / "etc/dnf-installed").read_text().split() == []
    # It may be the operator's own.
    assert host.policy.read_text() == POLICY


def test_absent_in_check_mode_changes_nothing_and_says_what_it_would(fleet, restored):
    host, run = fleet["hv"], restored["check"]
    assert run.last(host) == (NORMAL, "host would be restored: Nothing was changed.")
    assert set(run.changed(host)) == {
        "revert the changes of the host's settings",
        "let VDSM mount as stock",
        "remove the packages",
    }
    # The run after it found all in place.
    assert set(restored["first"].changed(host)) == set(run.changed(host))


def test_absent_again_and_without_the_command_changes_nothing(fleet, restored):
    assert restored["second"].changed(fleet["hv"]) == []
    for run in restored.values():
        assert run.of(fleet["lacking"]).failure == ""
        assert run.changed(fleet["lacking"]) == []
