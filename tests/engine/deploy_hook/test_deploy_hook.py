# SPDX-License-Identifier: GPL-2.0-or-later
"""``deploy-hook install``, ``remove`` and ``status``."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml
from support.engine.host_deploy import make_collection
from support.odd_files import KINDS, SAID, bounded, put
from support.problems import problem

from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.hosts import ansible_run, deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import PostTasksFile
from ovirt_rdma.host.paths import POLICY_YAML

pytestmark = pytest.mark.hypervisor

TOP = Path(__file__).resolve().parents[3]
THEIRS = b"---\n- name: theirs\n  ansible.builtin.command: /bin/true\n"
real_check = deploy_hook.check_syntax


class Machine:
    """An engine machine with our collection; ansible-playbook accepts everything."""

    def __init__(self, capsys, top: Path) -> None:
        self.capsys, self.top = capsys, top
        self.file = top / "post-tasks.yml"
        self.file.write_bytes(THEIRS)
        self.checked: list[bytes] = []
        self.collection = make_collection(top / "collections")

    def run(self, verb, *words):
        self.capsys.readouterr()
        code = main(["deploy-hook", verb, "--file", str(self.file), *words])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err


@pytest.fixture
def machine(capsys, tmp_path, monkeypatch):
    made = Machine(capsys, tmp_path)
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))
    monkeypatch.setattr(
        deploy_hook,
        "check_syntax",
        lambda content, beside: made.checked.append(content),
    )
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "no-such-user")
    monkeypatch.setattr(deploy_hook, "SETTINGS", str(tmp_path / "host-deploy.yml"))
    real = deploy_hook.read_settings
    own = str(tmp_path / "host-deploy.yml")
    monkeypatch.setattr(
        deploy_hook,
        "read_settings",
        lambda path=own, collection=None: real(path, collection),
    )
    return made


def test_install_status_and_remove(machine):
    assert machine.run("status")[0] == 3
    code, out, _ = machine.run("install")
    assert code == 0
    assert "was changed: the block is installed" in out
    assert machine.file.read_bytes().startswith(THEIRS)
    assert machine.checked[-1] == machine.file.read_bytes()
    code, out, _ = machine.run("status", "-o", "json")
    assert (code, json.loads(out)["block"]) == (0, "installed")
    code, out, _ = machine.run("remove")
    assert code == 0
    assert machine.file.read_bytes() == THEIRS
    assert machine.run("remove")[1].startswith("Nothing to do")


def test_a_second_install_changes_nothing(machine):
    machine.run("install")
    before = machine.file.stat()
    code, out, _ = machine.run("install")
    assert (code, out.startswith("Nothing to do")) == (0, True)
    after = machine.file.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize("verb", ["install", "remove"])
def test_the_dry_run_shows_the_differences(machine, verb):
    if verb == "remove":
        machine.run("install")
    before = machine.file.read_bytes()
    code, out, _ = machine.run(verb, "--dry-run")
    assert code == 0
    assert "include_role" in out
    assert "Nothing was changed" in out
    assert machine.file.read_bytes() == before


def test_a_file_that_is_refused_is_not_touched(machine):
    machine.file.write_bytes(b"a: 1\n")
    code, out, err = machine.run("install")
    assert (code, out) == (1, "")
    assert "it is not a list of tasks" in err
    assert "it was not changed" in err
    assert machine.file.read_bytes() == b"a: 1\n"
    assert [each.name for each in machine.top.glob("post-tasks*")] == ["post-tasks.yml"]


def test_an_outdated_block_is_shown_and_updated(machine, monkeypatch):
    machine.file.write_bytes(deploy_hook.installed(THEIRS, "/elsewhere"))
    code, out, _ = machine.run("status", "-o", "json")
    assert (code, json.loads(out)["block"]) == (3, "outdated")
    assert machine.run("install")[0] == 0
    assert machine.run("status")[0] == 0


def test_without_the_role_nothing_is_installed(machine, monkeypatch):
    monkeypatch.setattr(ansible_run, "collection_paths", list)
    code, _, err = machine.run("install")
    assert code == 1
    assert "ovirt_rdma.host is not installed" in err
    assert machine.file.read_bytes() == THEIRS
    code, out, _ = machine.run("status", "-o", "json")
    assert (code, json.loads(out)["role_found"]) == (3, False)


def test_another_run_is_refused(machine):
    with PostTasksFile(str(machine.file)).locked():
        assert machine.run("install")[0] == 75


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another")
def test_status_sees_that_the_engine_cannot_read_the_file(machine, monkeypatch):
    machine.run("install")
    monkeypatch.setattr(deploy_hook, "ENGINE_USER", "nobody")
    code, out, _ = machine.run("status")  # its folder is root's alone
    assert code == 3
    assert "cannot be read by the engine's user, nobody" in out
    assert f"fix: chmod o+r {machine.file}" in out
    with tempfile.NamedTemporaryFile() as other:
        for mode, user in ((0o644, ""), (0o600, "nobody")):
            Path(other.name).chmod(mode)
            assert deploy_hook.user_without_access(Path(other.name)) == user


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ovirt_rdma_mod: vdsmd\n", "the role has no variable ovirt_rdma_mod"),
        ("- a\n", "is not a list of lines"),
        ("a: [\n", "line"),
    ],
)
def test_status_reads_the_settings(machine, text, words):
    machine.run("install")
    specs = machine.collection / "roles/prepare/meta"
    specs.mkdir()
    shutil.copy(TOP / "host_deploy/roles/prepare/meta/argument_specs.yml", specs)
    good = "ovirt_rdma_mode: host\novirt_rdma_policy_file: '/x/{{ y }}.yaml'\n"
    (machine.top / "host-deploy.yml").write_text(good)
    assert machine.run("status")[0] == 0
    (machine.top / "host-deploy.yml").write_text(text)
    code, out, _ = machine.run("status")
    assert (code, words in out) == (3, True)


def test_the_packaged_settings_set_nothing_and_are_valid(tmp_path):
    packaged = TOP / "rpm/host-deploy.yml"
    role = TOP / "host_deploy"
    assert deploy_hook.read_settings(str(packaged), role) == {}
    text = re.sub(
        r"^# (ovirt_rdma_\w+:)", r"\1", packaged.read_text(), flags=re.MULTILINE
    )
    (tmp_path / "all.yml").write_text(text)
    shown = deploy_hook.read_settings(str(tmp_path / "all.yml"), role)
    defaults = yaml.safe_load((role / "roles/prepare/defaults/main.yml").read_text())
    ours = yaml.safe_load(deploy_hook.tasks_of())[2]["vars"]
    ours["ovirt_rdma_policy_file"] = POLICY_YAML
    assert len(shown) == text.count("\novirt_rdma_") > 5
    assert shown == {name: {**defaults, **ours}[name] for name in shown}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[ERROR]: couldn't resolve module/action 'x'.\n"
            "Origin: post_tasks.yml:4:3\n",
            "couldn't resolve module/action 'x'. Origin: post_tasks.yml:4:3",
        ),
        (
            "ERROR! couldn't resolve module/action 'x'.\n\nThe error appears to be in "
            "'post_tasks.yml': line 4, column 3, but may\nbe elsewhere\n",
            "couldn't resolve module/action 'x'. The error appears to be in "
            "'post_tasks.yml': line 4",
        ),
        (
            "ERROR! Unable to retrieve file contents\nCould not find or access 'x.yml' "
            "on the Ansible Controller.\n",
            "contents Could not find or access 'x.yml' on",
        ),
    ],
)
def test_the_line_of_ansibles_message_is_named(machine, monkeypatch, text, said):
    """ansible-core 2.19, and 2.14 to 2.18."""
    program = machine.top / "bin" / "ansible-playbook"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\nexit 4\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(deploy_hook, "check_syntax", real_check)
    code, _, err = machine.run("install")
    assert code == 1
    assert said in err


@pytest.fixture
def specs(machine, tmp_path):
    """The place of the role's variables, where there is nothing yet; one is set."""
    (tmp_path / "host-deploy.yml").write_text("ovirt_rdma_apply: true\n")
    path = machine.collection / "roles/prepare/meta/argument_specs.yml"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_engines_user_puts_in_the_collection_holds_up_nobody(
    machine, specs, kind
):
    """It may be in that user's home, and root reads it."""
    put(specs, kind)
    with bounded():
        found = deploy_hook.read_settings(collection=machine.collection)
    assert found == {"ovirt_rdma_apply": True}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "5",
        "argument_specs: {main: {options: none}}",
    ],
)
def test_a_damaged_collection_names_no_variable(machine, specs, text):
    specs.write_text(text)
    found = deploy_hook.read_settings(collection=machine.collection)
    assert found == {"ovirt_rdma_apply": True}


def test_settings_that_are_no_file_are_a_mistake(tmp_path):
    put(tmp_path / "host-deploy.yml", "pipe")
    with bounded(), problem("host-deploy-settings-invalid", SAID["pipe"]):
        deploy_hook.read_settings(str(tmp_path / "host-deploy.yml"))


@pytest.mark.parametrize("file", [["a"], 5, {"x": 1}])
def test_a_policy_file_that_is_no_name_is_a_mistake(file):
    with problem("host-deploy-settings-invalid", "ovirt_rdma_policy_file"):
        deploy_hook.policy_of({"ovirt_rdma_policy_file": file})


def test_a_folder_that_cannot_be_listed_is_one_sentence(tmp_path):
    missing = tmp_path / "missing"
    with problem("post-tasks-not-accessible", str(missing)):
        deploy_hook._write_play(tmp_path, b"", missing, tmp_path)


@pytest.mark.engine
def test_the_real_ansible_decides(machine, monkeypatch):
    monkeypatch.setattr(deploy_hook, "check_syntax", real_check)
    wrong = THEIRS + b"- name: wrong\n  no_such_module: {}\n"
    machine.file.write_bytes(wrong)
    code, out, err = machine.run("install")
    assert (code, out) == (1, "")
    assert "no_such_module" in err
    assert "no_such_module" in machine.run("status")[1]
    assert machine.file.read_bytes() == wrong
    # Files are found beside it, as by the engine's include_tasks.
    machine.file.write_bytes(THEIRS + b"- import_tasks: more.yml\n")
    (machine.top / "more.yml").write_bytes(THEIRS)
    assert machine.run("install")[0] == 0
    assert machine.run("status")[0] == 0
