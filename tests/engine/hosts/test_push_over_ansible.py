# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy is pushed to hosts: the module of our collection runs here, in a process of
its own; Ansible and ovirt-rdma-host are doubles.

test_push_by_real_ansible.py has the real Ansible, tests/lab/test_engine_ansible_lab.py
the real command too.
"""

from __future__ import annotations

import json
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine.drop_in_folders import COMMAND as REAL
from support.engine.drop_in_folders import FOLDERS, POLICY, host_takes
from support.engine.host_deploy import make_collection
from support.engine.policy_module import load_action
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    FAILED,
    OK,
    PLAYBOOKS,
    AnsibleRun,
    HostOutcome,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import MOST_POLICY_BYTES, Pushed
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.policy.load import PolicyFiles

pytestmark = pytest.mark.hypervisor

MODULE = Path(load_action.__code__.co_filename)
HOST = Host("1", "hv1", "192.0.2.1", "c")

# As ovirt-rdma-host behaves; what is not in it is a mistake of the module's.
COMMAND = r"""#!/bin/sh
cd "$(dirname "$0")/.." || exit 1
echo "$1 $2" >>calls
error() {
    printf '{"kind": "error", "id": "x", "sentences": ["%s"], "fix": "%s"}' "$2" "$3"
    exit "$1"
}
case $* in
"status -o json")
    digest=$(cat other loaded 2>/dev/null | head -n1)
    printf '{"kind": "status", "policy": {"digest": "%s"}}' "$digest"
    exit "$(cat status-status 2>/dev/null || echo 0)" ;;
"policy check "*" -o json")
    [ -f "$3" ] || exit 1
    if grep -q broken "$3"; then
        printf '{"kind": "policy-check", "errors": [{"file": "%s", "line": 1,' "$3"
        echo '"key": "nfs", "sentence": "is odd"}]}'
        exit 3
    fi
    echo '{"kind": "policy-check", "errors": [], "warnings": []}' ;;
"policy load "*" -y -o json")
    status=$(head -n1 load-status 2>/dev/null || echo 0)
    sed -i 1d load-status 2>/dev/null
    [ "$status" != hangs ] || exec /bin/sleep 60
    [ "${status:-0}" -eq 0 ] || error "$status" "it cannot be loaded" "correct it"
    [ -f "$3" ] || error 1 "there is no such file" "create it"
    cat "$3" "${3%policy.yaml}"policy.d/*.yaml 2>/dev/null | cksum | tr ' ' - >loaded
    printf '{"kind": "policy-load", "digest": "%s", "file_digest": "%s",' \
        "$(cat loaded)" "$(cksum <"$3" | tr ' ' -)"
    echo '"changed": true, "notes": [], "doubts": []}' ;;
*) exit 2 ;;
esac
"""


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Hypervisor:
    """A folder with a double of the add-on's command, in which the module is run."""

    def __init__(self, top: Path) -> None:
        self.top, self.spoil, self.path = top, "", f"{top}/bin:/usr/bin:/bin"
        self.policy = top / "etc" / "policy.yaml"
        self.folder = top / "etc" / "policy.d"
        for name in ("bin", "etc", "tmp"):
            (top / name).mkdir()
        self.program("ovirt-rdma-host", COMMAND)
        self.program("sleep", f"#!/bin/sh\necho sleep >>{top}/calls\n")

    def program(self, name: str, text: str) -> None:
        (self.top / "bin" / name).write_text(text)
        (self.top / "bin" / name).chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return (self.top / "calls").read_text().splitlines()

    def drop_ins(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.glob("[!.]*")}

    def beside(self) -> set[str]:
        return names(self.policy.parent)

    def module(self, order: AnsibleRun) -> subprocess.Popen[str]:
        """Start the module as the playbook has it."""
        assert order.playbook == "push_policy.yml"
        source = Path(order.variables["ovirt_rdma_policy"])
        content = load_action()._read(source)
        process = subprocess.Popen(
            [sys.executable, str(MODULE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": self.path,
                "TMPDIR": f"{self.top}/tmp",
                "POLICY": str(self.policy),
                "OVIRT_RDMA_TEST_SPOIL": self.spoil,
            },
        )
        words = {"src": str(source), "content": content, "path": str(self.policy)}
        json.dump({**words, "backup": False}, process.stdin)
        process.stdin.close()
        process.stdin = None
        return process

    def run(self, order: AnsibleRun, folder: str) -> Iterator[HostOutcome]:
        out, err = self.module(order).communicate()
        assert err == ""
        for alias in order.inventory["all"]["hosts"]:
            if out:
                result = json.loads(out)
                kind = FAILED if result.get("failed") else OK
                yield HostOutcome(alias, kind, result.get("msg", ""), result)

    def push(self, policy: object) -> Pushed:
        return AnsibleHosts(run=self.run).push_policy([HOST], policy)["hv1"]


@pytest.fixture(autouse=True)
def collection(tmp_path, monkeypatch):
    """A collection that is there; which one does not matter."""
    make_collection(tmp_path / "collections")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))


@pytest.fixture
def hypervisor(tmp_path) -> Hypervisor:
    (tmp_path / "hv1").mkdir()
    return Hypervisor(tmp_path / "hv1")


def test_the_text_is_there_and_loaded(hypervisor):
    hypervisor.policy.write_bytes("old: é\n".encode())
    hypervisor.policy.chmod(0o600)
    text = "version: 1  # '\"$(id)`id` {{ x }} é\r\n\n"
    pushed = hypervisor.push(text)
    assert pushed.problem == ""
    assert pushed.digest == (hypervisor.top / "loaded").read_text().strip()
    assert hypervisor.policy.read_bytes() == text.encode()
    assert stat.S_IMODE(hypervisor.policy.stat().st_mode) == 0o644
    assert hypervisor.beside() == {"policy.yaml"}


def test_the_folder_is_made(hypervisor):
    hypervisor.policy.parent.rmdir()
    assert hypervisor.push("version: 1\n").problem == ""
    assert hypervisor.policy.read_text() == "version: 1\n"
    assert stat.S_IMODE(hypervisor.policy.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize("old", ["old\n", "", None])
def test_none_loads_the_empty_policy_and_takes_the_file_away(hypervisor, old):
    if old is not None:
        hypervisor.policy.write_text(old)
    pushed = hypervisor.push(None)
    assert pushed.problem == ""
    assert pushed.digest == "4294967295-0"  # cksum of nothing
    assert hypervisor.beside() == set()


@pytest.mark.parametrize("old", ["old\n", None])
def test_a_text_that_the_host_finds_broken_changes_nothing(hypervisor, old):
    if old is not None:
        hypervisor.policy.write_text(old)
    pushed = hypervisor.push("broken\n")
    assert pushed.problem == "on hv1: the policy is invalid: line 1: nfs: is odd"
    assert "policy check" in pushed.fix
    assert pushed.digest is None
    assert [file.read_text() for file in hypervisor.policy.parent.iterdir()] == (
        [] if old is None else [old]
    )
    assert "policy load" not in hypervisor.calls


@pytest.mark.parametrize("old", ["old\n", None])
@pytest.mark.parametrize("text", ["new\n", None])
def test_a_load_that_fails_brings_the_earlier_file_back(hypervisor, old, text):
    if old is not None:
        hypervisor.policy.write_text(old)
        hypervisor.policy.chmod(0o600)
        kept = hypervisor.policy.stat()
    (hypervisor.top / "load-status").write_text("1\n")
    pushed = hypervisor.push(text)
    restored = f"the earlier {hypervisor.policy} was restored"
    assert pushed.problem == f"on hv1: it cannot be loaded; {restored}"
    assert (pushed.fix, pushed.digest) == ("correct it", None)
    assert hypervisor.beside() == (set() if old is None else {"policy.yaml"})
    if old is not None:
        assert hypervisor.policy.read_text() == old
        assert (hypervisor.policy.stat().st_mode, hypervisor.policy.stat().st_ino) == (
            kept.st_mode,
            kept.st_ino,
        )


def test_a_link_is_restored_as_a_link(hypervisor):
    (hypervisor.top / "site.yaml").write_text("old\n")
    hypervisor.policy.symlink_to(hypervisor.top / "site.yaml")
    (hypervisor.top / "load-status").write_text("1\n")
    assert "was restored" in hypervisor.push("new\n").problem
    assert hypervisor.policy.is_symlink()
    assert (hypervisor.top / "site.yaml").read_text() == "old\n"
    assert hypervisor.push("new\n").problem == ""
    assert not hypervisor.policy.is_symlink()
    assert (hypervisor.top / "site.yaml").read_text() == "old\n"


A, B = {"50-a.yaml": "a\n"}, {"50-b.yaml": "b é\n", "60-c.yaml": "c"}


def test_the_drop_ins_are_replaced_with_the_file(hypervisor):
    hypervisor.policy.write_text("old\n")
    for file, drop_ins in (("old\n", A), ("new\n", B), (None, A), ("new\n", {})):
        assert hypervisor.push(PolicyFiles(file, drop_ins)).problem == ""
        assert hypervisor.drop_ins() == drop_ins
        assert hypervisor.policy.exists() is (file is not None)
        assert hypervisor.beside() <= {"policy.yaml", "policy.d"}
        for path in hypervisor.folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(hypervisor.folder.stat().st_mode) == 0o755


def test_what_is_no_drop_in_or_the_same_stays_as_it_is(hypervisor):
    folder = hypervisor.folder
    folder.mkdir(mode=0o750)
    (folder / "README").write_text("ours\n")
    (hypervisor.top / "site.yaml").write_text("site\n")
    (folder / "10-site.yaml").symlink_to(hypervisor.top / "site.yaml")
    for drop_ins in (A, B):
        files = PolicyFiles("new\n", {"10-site.yaml": "site\n", **drop_ins})
        assert hypervisor.push(files).problem == ""
        assert (folder / "README").read_text() == "ours\n"
        assert (folder / "10-site.yaml").is_symlink()
        assert names(folder) == {"README", "10-site.yaml", *drop_ins}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o750


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_push_beside_drop_ins_finds_what_the_host_finds(hypervisor, folder):
    """B7 of the third review: as the collection's module does in check mode."""
    hypervisor.folder.mkdir()
    FOLDERS[folder](hypervisor.folder)
    hypervisor.policy.write_text(POLICY)
    check = f'[ "$1 $2" != "policy check" ] || exec {shlex.join(REAL)} "$@"\n'
    hypervisor.program("ovirt-rdma-host", COMMAND.replace("\n", f"\n{check}", 1))
    pushed = hypervisor.push("# new\n" + POLICY)
    assert (pushed.problem == "") is host_takes(hypervisor.policy)
    assert hypervisor.policy.read_text().startswith("# new") is (not pushed.problem)
    assert hypervisor.beside() == {"policy.d", "policy.yaml"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_the_host_refused_can_be_replaced(hypervisor, folder):
    """All but a folder, which is no drop-in: it is left, with a sentence."""
    hypervisor.folder.mkdir()
    FOLDERS[folder](hypervisor.folder)
    pushed = hypervisor.push(PolicyFiles("new\n", B))
    if folder == "a folder":
        assert "50-a.yaml cannot be written" in pushed.problem
        assert (hypervisor.folder / "50-a.yaml").is_dir()
        assert hypervisor.beside() == {"policy.d"}
    else:
        assert pushed.problem == ""
        assert hypervisor.drop_ins().items() >= B.items()
        assert "50-a.yaml" not in names(hypervisor.folder)


@pytest.mark.parametrize("status", [0, 1])
def test_no_drop_in_is_missing_while_others_are_replaced(hypervisor, status):
    kept = {"10-x.yaml": "x\n"}
    hypervisor.push(PolicyFiles("old\n", {**kept, **A}))
    (hypervisor.top / "load-status").write_text(f"{status}\n")
    hypervisor.spoil = f"seen {hypervisor.top}/seen"
    hypervisor.push(PolicyFiles("new\n", {**kept, **B}))
    lines = (hypervisor.top / "seen").read_text().splitlines()
    assert len({*lines}) > 3
    assert all("10-x.yaml" in line.split() for line in lines)
    assert all({*A} <= {*line.split()} or {*B} <= {*line.split()} for line in lines)
    assert hypervisor.drop_ins() == {**kept, **(B if status == 0 else A)}


@pytest.mark.parametrize("status", [0, 1])
def test_a_push_that_is_killed_anywhere_leaves_each_file_whole(hypervisor, status):
    """And the next push completes."""
    old, new = ("old\n" * 5000, A), ("new\n" * 5000, B)
    for number in range(1, 100):
        hypervisor.spoil = ""
        assert hypervisor.push(PolicyFiles(*old)).problem == ""
        (hypervisor.top / "load-status").write_text(f"{status}\n")
        hypervisor.spoil = f"killed {number}"
        pushed = hypervisor.push(PolicyFiles(*new))
        if "did not answer" not in pushed.problem:
            break
        assert hypervisor.policy.read_text() in (old[0], new[0])
        there = hypervisor.drop_ins()
        assert there.items() >= A.items() or there.items() >= B.items()
        assert there.items() <= {**A, **B}.items()
        (hypervisor.top / "load-status").unlink(missing_ok=True)
    assert number > 8


def test_a_policy_alone_leaves_the_drop_ins(hypervisor):
    hypervisor.push(PolicyFiles("old\n", B))
    assert hypervisor.push("new\n").problem == ""
    assert hypervisor.drop_ins() == B
    assert hypervisor.policy.read_text() == "new\n"
    assert hypervisor.push(None).problem == ""
    assert (hypervisor.drop_ins(), hypervisor.policy.exists()) == (B, False)


def test_a_load_that_fails_brings_the_earlier_drop_ins_back(hypervisor):
    hypervisor.push(PolicyFiles("old\n", A))
    (hypervisor.top / "load-status").write_text("1\n")
    assert "was restored" in hypervisor.push(PolicyFiles("new\n", B)).problem
    assert hypervisor.drop_ins() == A
    assert hypervisor.policy.read_text() == "old\n"
    assert len(names(hypervisor.folder)) == 1


def test_a_file_that_cannot_be_replaced_leaves_the_others(hypervisor):
    hypervisor.push(PolicyFiles("old\n", A))
    (hypervisor.folder / "99-x.yaml").mkdir()
    pushed = hypervisor.push(PolicyFiles("new\n", B))
    assert "99-x.yaml cannot be written: Operation not permitted" in pushed.problem
    assert hypervisor.policy.read_text() == "old\n"
    assert names(hypervisor.folder) == {*A, "99-x.yaml"}
    assert hypervisor.calls.count("policy load") == 1


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            {"file": "/x/policy.d/50-a.yaml", "line": 3, "key": "nfs.rules[1]"},
            "policy.d/50-a.yaml: line 3: nfs.rules[1]: is odd",
        ),
        (
            {"file": "/x/policy.d/a.yaml", "line": None, "key": ""},
            "policy.d/a.yaml: is odd",
        ),
        ({"file": "/x/.new/policy.yaml", "line": 3, "key": ""}, "line 3: is odd"),
    ],
)
def test_a_mistake_that_the_host_finds_names_its_drop_in(hypervisor, error, shown):
    errors = [{**error, "sentence": "is odd"}]
    document = json.dumps({"kind": "policy-check", "errors": errors})
    text = f"#!/bin/sh\ncase $1 in policy) echo '{document}'; exit 3;; esac\n"
    hypervisor.program("ovirt-rdma-host", text)
    pushed = hypervisor.push("new\n")
    assert pushed.problem == f"on hv1: the policy is invalid: {shown}"


def test_the_add_on_is_missing(hypervisor):
    hypervisor.path = "/nowhere"
    pushed = hypervisor.push("new\n")
    assert pushed.problem == "on hv1: the command ovirt-rdma-host is missing"
    assert pushed.fix == "install the package ovirt-rdma-host on the host"
    assert hypervisor.beside() == set()


@pytest.mark.parametrize("status", [0, 3])
def test_another_policy_that_was_loaded_meanwhile_is_no_success(hypervisor, status):
    (hypervisor.top / "status-status").write_text(f"{status}")
    assert hypervisor.push("new\n").problem == ""
    (hypervisor.top / "other").write_text("sha256:b\n")
    pushed = hypervisor.push(PolicyFiles("new\n", A))
    loaded = (hypervisor.top / "loaded").read_text().strip()
    assert pushed.problem == (
        "on hv1: the policy in force is not the one just loaded: sha256:b, not "
        f"{loaded}"
    )
    assert "somebody else has loaded a policy at the same time" in pushed.fix


def test_a_host_that_another_run_changes_is_waited_for(hypervisor):
    (hypervisor.top / "load-status").write_text("75\n75\n")
    assert hypervisor.push("new\n").problem == ""
    assert hypervisor.calls.count("sleep") == 2


def test_but_not_for_ever(hypervisor):
    hypervisor.policy.write_text("old\n")
    (hypervisor.top / "load-status").write_text("75\n" * 99)
    pushed = hypervisor.push("new\n")
    assert "it cannot be loaded" in pushed.problem
    assert "was restored" in pushed.problem
    assert hypervisor.policy.read_text() == "old\n"
    # For a minute, every 3 s.
    assert 19 <= hypervisor.calls.count("sleep") <= 20


def test_a_command_that_hangs_is_ended_and_the_files_are_restored(hypervisor):
    hypervisor.policy.write_text("old\n")
    (hypervisor.top / "load-status").write_text("hangs\n")
    hypervisor.spoil = "limit 0.5"
    pushed = hypervisor.push("new\n")
    assert "ovirt-rdma-host policy did not end in 0.5 seconds; " in pushed.problem
    assert "was restored" in pushed.problem
    assert hypervisor.policy.read_text() == "old\n"
    assert hypervisor.beside() == {"policy.yaml"}


def test_a_connection_that_goes_while_it_loads_leaves_nothing_half_done(hypervisor):
    hypervisor.policy.write_text("old\n")
    (hypervisor.top / "load-status").write_text("75\n1\n")
    gone, waits = hypervisor.top / "gone", hypervisor.top / "waits"
    until = f"until [ -e {gone} ]; do /bin/sleep 0.01; done"
    hypervisor.program("sleep", f"#!/bin/sh\ntouch {waits}\n{until}\n")

    def run(order, folder):
        module = hypervisor.module(order)
        while not waits.exists():
            assert module.poll() is None
        assert hypervisor.policy.read_text() == "new\n"
        module.stdout.close()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            module.send_signal(number)
        gone.touch()
        module.wait()
        return iter(())

    AnsibleHosts(run=run).push_policy([HOST], "new\n")
    assert hypervisor.policy.read_text() == "old\n"
    assert hypervisor.beside() == {"policy.yaml"}


def test_a_text_that_is_too_long_is_refused(hypervisor):
    refused = hypervisor.push("#" * 70_000)
    assert "70000 bytes" in refused.problem
    assert "60000" in refused.problem
    assert refused.fix
    assert not (hypervisor.top / "calls").exists()
    assert hypervisor.push("#" * MOST_POLICY_BYTES).problem == ""


def test_the_longest_policy_comes_back_whole(hypervisor):
    """Its result has the text twice, and ssh.sh passes on so much of it."""
    sent = []

    def run(order, folder):
        for outcome in hypervisor.run(order, folder):
            sent.append(outcome.result)
            yield outcome

    text = "é" * (MOST_POLICY_BYTES // 2)
    hypervisor.policy.write_text("x" * 900_000)
    pushed = AnsibleHosts(run=run).push_policy([HOST], text)["hv1"]
    assert pushed.problem == ""
    invocation = {"module_args": {"content": text}}
    size = len(json.dumps({**sent[0], "invocation": invocation}))
    assert size < ansible_run.MOST_SENT // 2


def test_a_machine_without_the_collection_says_so(hypervisor, monkeypatch):
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", "")
    monkeypatch.setattr(ansible_run, "_SYSTEM", str(hypervisor.top))
    with problem("collection-missing", "ovirt_rdma.host", "ovirt-rdma-engine"):
        hypervisor.push("new\n")


def test_ansible_takes_no_policy_for_a_template(hypervisor):
    """It is in files, and no variable has a word of it."""
    orders = []

    def run(order, folder):
        orders.append(order)
        return hypervisor.run(order, folder)

    text = "{{ lookup('pipe', 'id') }}\n"
    AnsibleHosts(run=run).push_policy([HOST], PolicyFiles(text, {"50-a.yaml": text}))
    (order,) = orders
    assert "lookup" not in json.dumps([dict(order.variables), order.inventory])
    assert "lookup" not in (PLAYBOOKS / order.playbook).read_text()
    assert hypervisor.policy.read_text() == text
    assert hypervisor.drop_ins() == {"50-a.yaml": text}
