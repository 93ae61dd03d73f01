# SPDX-License-Identifier: GPL-2.0-or-later
"""Root runs nothing that another user could have written: not the engine's user either.

That user has the engine's SSH key, but is not root on the engine's machine.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.engine.host_deploy import make_collection
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run, deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts, read_inventory
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import is_trusted
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import PostTasksProblem
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.system import commands

pytestmark = pytest.mark.hypervisor

NOBODY = pwd.getpwnam("nobody")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")


def to_nobody(path: Path) -> None:
    os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)


def by_link(top: Path) -> Path:
    (top / "link").symlink_to("a")
    return top / "link" / "b"


def by_their_link(top: Path) -> Path:
    (top / "theirs").mkdir()
    (top / "theirs" / "link").symlink_to("../a")
    (top / "theirs").chmod(0o777)
    (top / "link").symlink_to("theirs/link")
    return top / "link" / "b"


def mode(name: str, bits: int):
    def change(top: Path) -> Path:
        (top / name).chmod(bits)
        return top / "a/b"

    return change


def owner(name: str):
    def change(top: Path) -> Path:
        to_nobody(top / name)
        return top / "a/b"

    return change


def loop(top: Path) -> Path:
    (top / "loop").symlink_to("loop")
    return top / "loop"


@pytest.mark.parametrize(
    ("change", "trusted"),
    [
        (mode("a", 0o755), True),
        (by_link, True),
        (mode("a", 0o1777), True),
        (mode("a", 0o777), False),
        (mode("a", 0o775), False),
        (mode("a/b", 0o1777), False),
        (by_their_link, False),
        (lambda top: top / "none", False),
        (loop, False),
        pytest.param(owner("a"), False, marks=root_only),
        pytest.param(owner("a/b"), False, marks=root_only),
    ],
)
def test_who_can_change_a_folder(tmp_path, change, trusted):
    (tmp_path / "a/b").mkdir(parents=True)
    assert is_trusted(change(tmp_path)) is trusted


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home of the engine's user, who can change our collection in it."""
    made = make_collection(tmp_path / ".ansible/collections")
    tmp_path.joinpath(".ansible").chmod(0o777)
    user = SimpleNamespace(pw_dir=str(tmp_path))
    monkeypatch.setattr(ansible_run.pwd, "getpwnam", lambda name: user)
    monkeypatch.setattr(ansible_run, "_SYSTEM", str(tmp_path / "system"))
    monkeypatch.delenv("OVIRT_RDMA_COLLECTIONS", raising=False)
    return made


def test_hosts_are_prepared_by_our_own_collection_only(home, tmp_path):
    orders = []

    def run(order, folder):
        orders.append(order)
        return iter(())

    hosts = AnsibleHosts(run=run)
    one = Host("1", "hv1", "192.0.2.1", "c")
    with problem("collection-not-trusted", home, "others can change it"):
        hosts.prepare([one], {})
    assert orders == []
    make_collection(tmp_path / "system")
    hosts.prepare([one], {})
    (order,) = orders
    assert order.collections == (str(tmp_path / "system"),)


def test_an_ansible_cfg_of_others_is_not_read(tmp_path, monkeypatch):
    listed = 'echo \'{"_meta": {"hostvars": {"hv1": {"in": "\'$PWD\'"}}}}\''
    (tmp_path / "inventory").touch()
    monkeypatch.chdir(tmp_path)
    for bits, folder in ((0o755, str(tmp_path)), (0o777, "/")):
        tmp_path.chmod(bits)
        seen = read_inventory("inventory", ("/bin/sh", "-c", listed))
        assert seen["hv1"]["in"] == folder


def test_root_runs_ansible_as_the_engines_user(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "nobody")
    monkeypatch.setattr(deploy_hook.os, "geteuid", lambda: 0)
    monkeypatch.setattr(deploy_hook, "_give", lambda folder, user: None)
    monkeypatch.setattr(
        deploy_hook.shutil, "which", lambda program, path: f"/bin/{program}"
    )
    monkeypatch.setattr(
        deploy_hook, "run_command", lambda words, seconds, **with_: ran.append(with_)
    )
    deploy_hook.check_syntax(b"- a: b\n", tmp_path)
    (options,) = ran
    assert (options["user"], options["group"]) == (NOBODY.pw_uid, NOBODY.pw_gid)
    assert 0 not in options["extra_groups"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("while :; do echo x; done", "was ended: it prints more than 1000 bytes"),
        ("exec sleep 600", "was ended: no answer within 0.3 s"),
    ],
)
def test_a_check_that_does_not_end_is_ended(tmp_path, monkeypatch, script, words):
    program = tmp_path / "bin/ansible-playbook"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (tmp_path / "beside").mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(commands, "MOST_BYTES", 1000)
    # A machine with an engine has its user, who may not enter the folder.
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "nobody-of-an-engine")
    limit = 60.0 if "echo" in script else 0.3
    monkeypatch.setattr(deploy_hook, "_CHECKING_S", limit)
    with problem("post-tasks-check-ended", words):
        deploy_hook.check_syntax(b"- a: b\n", tmp_path / "beside")


@root_only
def test_root_checks_the_tasks_as_the_engines_user(monkeypatch):
    """Ansible loads plugins from that user's home."""
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "nobody")
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "ansible-playbook"
        Path(name).chmod(0o755)
        program.write_text(
            '#!/bin/sh\n: >"$HOME/written" && cat tasks/post_tasks.yml play.yml '
            '>/dev/null && echo "ERROR! uid=$(id -u), groups $(id -G)$(ls ..)" '
            ">&2\nexit 4\n"
        )
        program.chmod(0o755)
        (Path(name) / "beside").mkdir()
        monkeypatch.setenv("PATH", f"{name}:/usr/bin:/bin")
        monkeypatch.setattr(tempfile, "tempdir", name)
        with pytest.raises(PostTasksProblem) as caught:
            deploy_hook.check_syntax(b"- a: b\n", Path(name) / "beside")
        program.chmod(stat.S_IRWXU)
        with problem("ansible-missing", program, "by the engine's user"):
            deploy_hook.check_syntax(b"- a: b\n", Path(name) / "beside")
        assert sorted(each.name for each in Path(name).iterdir()) == [
            "ansible-playbook",
            "beside",
        ]
    as_nobody = f"refuses it: uid={NOBODY.pw_uid}, groups {NOBODY.pw_gid}"
    assert str(caught.value).endswith(as_nobody)
