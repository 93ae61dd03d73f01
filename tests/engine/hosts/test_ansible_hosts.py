# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts over Ansible: the scripts run here by sh, Ansible and ssh are doubles.

tests/lab/test_engine_ansible_lab.py has the real ones.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.hosts import ansible as ansible_hosts
from ovirt_rdma.engine_sdk_tools.hosts import ansible_run
from ovirt_rdma.engine_sdk_tools.hosts.ansible import (
    Access,
    AnsibleHosts,
    explain_failure,
    inventory_of,
    read_answers,
    read_inventory,
    why_not_asked,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import (
    FAILED,
    LATE,
    OK,
    UNREACHABLE,
    AnsibleProblem,
    AnsibleRun,
    HostOutcome,
    run_order,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.system import commands

pytestmark = pytest.mark.hypervisor

FACTS = Path(__file__).parents[2] / "data" / "facts" / "rxe-one-mount.json"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"

# As ovirt-rdma-host behaves; what is not in it is a mistake of the script's.
COMMAND = r"""#!/bin/sh
cd "$(dirname "$0")/.." || exit 1
echo "$*" >>calls
case $* in
"facts -o json") cat facts.json ;;
"status -o json")
    echo "note: nothing" >&2
    digest=$(cat loaded 2>/dev/null)
    printf '{"kind": "status", "policy": {"digest": "%s"}}' "$digest"
    exit "$(cat status-status 2>/dev/null || echo 0)" ;;
*) exit 2 ;;
esac
"""


def host(name: str = "hv1", **more: object) -> Host:
    words = {"address": "192.0.2.1", "public_key": KEY, **more}
    return Host("1", name, cluster="c", **words)


class Hypervisor:
    """A folder with a double of the add-on's command, in which scripts are run."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.orders: list[AnsibleRun] = []
        self.policy = top / "etc" / "policy.yaml"
        (top / "bin").mkdir()
        (top / "etc").mkdir()
        (top / "tmp").mkdir()
        command = top / "bin" / "ovirt-rdma-host"
        command.write_text(COMMAND)
        command.chmod(0o755)
        (top / "facts.json").write_text(FACTS.read_text())

    @property
    def calls(self) -> list[str]:
        return (self.top / "calls").read_text().splitlines()

    def run(self, order: AnsibleRun, folder: str) -> Iterator[HostOutcome]:
        self.orders.append(order)
        done = subprocess.run(
            ["/bin/sh", "-c", order.script],
            check=True,
            capture_output=True,
            text=True,
            env={"PATH": f"{self.top}/bin:/usr/bin:/bin", "TMPDIR": f"{self.top}/tmp"},
        )
        assert done.stderr == ""
        assert list((self.top / "tmp").iterdir()) == []
        for alias in order.inventory["all"]["hosts"]:
            yield HostOutcome(alias, OK, done.stdout)

    def door(self, **more: object) -> AnsibleHosts:
        return AnsibleHosts(run=self.run, clock=lambda: 12.0, **more)


@pytest.fixture
def hypervisor(tmp_path, monkeypatch) -> Hypervisor:
    found = Hypervisor(tmp_path)
    monkeypatch.setattr(ansible_hosts, "POLICY_YAML", str(found.policy))
    return found


def test_report_has_all_that_the_host_says(hypervisor):
    hypervisor.policy.write_text("version: 1\n# {{ no template }} é\n")
    (hypervisor.top / "loaded").write_text("sha256:1")
    told = []
    reports = hypervisor.door().reports([host()], told.append)
    report = reports["hv1"]
    assert report.facts == model.load(FACTS)
    assert report.policy_digest == "sha256:1"
    assert report.policy_text == "version: 1\n# {{ no template }} é\n"
    assert (report.problem, report.fix, report.read_at) == ("", "", 12.0)
    assert told == ["hv1"]
    assert hypervisor.calls == ["facts -o json", "status -o json"]


def test_a_status_that_has_found_something_wrong_is_a_status(hypervisor):
    (hypervisor.top / "loaded").write_text("sha256:1")
    (hypervisor.top / "status-status").write_text("3")
    report = hypervisor.door().reports([host()])["hv1"]
    assert (report.problem, report.policy_digest) == ("", "sha256:1")
    (hypervisor.top / "status-status").write_text("1")
    assert hypervisor.door().reports([host()])["hv1"].problem


def test_a_host_without_policy_file_has_none(hypervisor):
    report = hypervisor.door().reports([host()])["hv1"]
    assert report.policy_text is None
    assert report.problem == ""


def test_the_add_on_is_missing(hypervisor):
    (hypervisor.top / "bin" / "ovirt-rdma-host").unlink()
    report = hypervisor.door().reports([host()])["hv1"]
    assert report.facts is None
    assert "ovirt-rdma-host" in report.problem
    assert "hv1" in report.problem
    assert "install the package ovirt-rdma-host" in report.fix


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the facts of hv1: this is not a document of"),
        (b"[1]", "the facts of hv1: it is an array, not an object"),
        (b"\xff\xfe", "the facts of hv1: this is not a document of"),
        (b"{}", "the facts of hv1"),
        (
            b'{"schema_version": 99, "kind": "facts"}',
            "schema version 99; this one reads 2",
        ),
    ],
)
def test_facts_that_are_none(hypervisor, content, part):
    (hypervisor.top / "facts.json").write_bytes(content)
    report = hypervisor.door().reports([host()])["hv1"]
    assert report.facts is None
    assert part in report.problem
    assert report.fix


def test_a_failure_keeps_what_is_good_and_says_what_is_not(hypervisor):
    hypervisor.policy.mkdir()
    report = hypervisor.door().reports([host()])["hv1"]
    assert report.facts is not None
    assert report.status is not None
    assert report.policy_text is None
    assert "Is a directory" in report.problem


def test_other_output_and_cut_lines_are_no_answers():
    good = "H4sIAAAAAAACAwMAAAAAAAAAAAA="  # gzip of nothing
    text = (
        "Welcome to hv1\r\n"
        f"ovirt-rdma-told facts 0 {good} {good}\r\n"
        f"ovirt-rdma-told status 0 {good[:-8]} {good}\n"
        f"ovirt-rdma-told policy 0 {good}\n"
        f"ovirt-rdma-told other x {good} {good}\n"
        f"say ovirt-rdma-told before 0 {good} {good}\n"
    )
    assert read_answers(text) == {"facts": (0, b"", "")}


A = {"50-a.yaml": "a\n"}


def test_a_report_has_the_drop_ins_of_the_status():
    status = {"policy": {"drop_ins": A}}
    assert HostReport("hv1", status=status).drop_ins == A
    for odd in (None, 5, {"../x": "a"}, {"50-a.yaml": 5}, {"50-a.yml": ""}):
        status = {"policy": {"drop_ins": odd}}
        assert HostReport("hv1", status=status).drop_ins is None


@pytest.mark.parametrize("broken", ["report_of", "explain_failure"])
def test_a_bug_of_ours_is_one_hosts_alone(hypervisor, monkeypatch, broken):
    """It is in reading the answer of hv1, or the reason why there is none."""
    right = getattr(ansible_hosts, broken)

    def wrong(first, *words, **more):
        if first in ("hv1", host("hv1")):
            raise LookupError("no such thing")
        return right(first, *words, **more)

    def run(order, folder):
        first, *others = hypervisor.run(order, folder)
        yield (
            first
            if broken == "report_of"
            else HostOutcome(first.alias, UNREACHABLE, "")
        )
        yield from others

    monkeypatch.setattr(ansible_hosts, broken, wrong)
    hosts = [host("hv1"), host("hv2")]
    reports = AnsibleHosts(run=run).reports(hosts)
    assert "a bug of ovirt-rdma: LookupError" in reports["hv1"].problem
    assert (reports["hv1"].facts, reports["hv2"].problem) == (None, "")
    assert reports["hv2"].facts == model.load(FACTS)


@pytest.mark.parametrize(
    "address", ["", "{{ 7 * 7 }}", "-oProxyCommand=id", "hv 1", "a\nb", "hv1;id"]
)
def test_an_address_that_is_none_reaches_neither_ansible_nor_ssh(address):
    def never(*words):
        raise AssertionError("this must run nothing")

    door = AnsibleHosts(run=never)
    report = door.reports([host(address=address)])["hv1"]
    assert "neither a name nor an IP address" in report.problem


def test_a_host_of_which_nothing_came_is_unknown():
    door = AnsibleHosts(run=lambda order, folder: iter(()))
    reports = door.reports([host(), host("hv2")])
    assert [report.problem for report in reports.values()] == [
        "hv1 did not answer in time",
        "hv2 did not answer in time",
    ]


def test_each_host_gets_its_own_answer_in_the_order_asked(hypervisor):
    def run(order, folder):
        first, second = order.inventory["all"]["hosts"]
        yield HostOutcome(second, UNREACHABLE, "Connection refused")
        yield from hypervisor.run(order, folder)
        yield HostOutcome(first, OK, "a second answer of one host")

    told = []
    reports = AnsibleHosts(run=run).reports([host("hv1"), host("hv2")], told.append)
    assert list(reports) == ["hv1", "hv2"]
    assert reports["hv1"].facts is not None
    assert "cannot be reached" in reports["hv2"].problem
    assert told == ["hv2", "hv1"]


CHANGED = """Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Host key for host-0 has changed and you have requested strict checking.
Host key verification failed."""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (CHANGED, "hv1 does not present the host key that the engine knows"),
        (
            "Task failed: Failed to connect to the host via ssh: Unable to negotiate "
            "with 192.0.2.1 port 22: no matching host key type found. Their offer: x",
            "hv1 does not present the host key that the engine knows",
        ),
        (
            "Failed to connect to the host via ssh: No ED25519 host key is known for "
            "host-0 and you have requested strict checking.\r\n"
            "Host key verification failed.",
            "neither the engine nor known_hosts has the SSH host key of hv1",
        ),
        (
            "root@192.0.2.1: Permission denied (publickey,password).",
            "hv1 does not accept the SSH key",
        ),
        (
            "Task failed: Failed to connect to the host via ssh: ssh: connect to host "
            "192.0.2.1 port 22: No route to host",
            "hv1 cannot be reached by SSH on 192.0.2.1 port 22: ssh: connect to host "
            "192.0.2.1 port 22: No route to host",
        ),
        (
            "ssh: Could not resolve hostname hv1: Name or service not known",
            "the address of hv1, 192.0.2.1, cannot be resolved on this machine",
        ),
        ("sudo: a password is required", "hv1 requires a password for sudo"),
        ("Timed out after 180 second(s).", "hv1 did not answer in time"),
        (
            "The raw action failed to execute in the expected time frame (3) and was "
            "terminated",
            "hv1 did not answer in time",
        ),
        ("non-zero return code\nodd things", "hv1 could not be asked: odd things"),
        ("", "hv1 could not be asked: no message"),
        ("{host} {0} {", "hv1 could not be asked: {host} {0} {"),
    ],
)
def test_failures_in_words(text, sentence):
    failure = explain_failure(host(), text)
    assert failure.sentence == sentence
    assert failure.fix
    assert "{" not in failure.fix


def inventory(theirs=None, *, key=KEY, **access):
    words = (Access(**access), "/tmp/a b/%known_hosts", theirs or {})
    one = host(port=2222, public_key=key)
    return inventory_of({"host-0": one}, *words)["all"]["hosts"]["host-0"]


def test_inventory_checks_the_engines_key():
    entry = inventory()
    assert (entry["ansible_host"], entry["ansible_port"]) == ("192.0.2.1", 2222)
    assert (entry["ansible_user"], entry["ansible_become"]) == ("root", False)
    options = ssh_sees(entry)
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["hostkeyalias"] == "host-0"
    assert options["hostkeyalgorithms"] == "ssh-ed25519"
    assert options["globalknownhostsfile"] == "/dev/null"
    assert options["userknownhostsfile"] == "/tmp/a b/%known_hosts"
    assert options["batchmode"] == "yes"


def test_a_host_without_key_is_checked_against_the_operators_known_hosts():
    options = ssh_sees(inventory(key=None))
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert "hostkeyalias" not in options
    assert "known_hosts" in options["userknownhostsfile"]


def test_the_operators_variables_come_on_top_but_for_the_check():
    entry = inventory(
        {
            "192.0.2.1": {"ansible_user": "other", "ansible_port": 2},
            "hv1": {
                "ansible_user": "admin",
                "ansible_host": "198.51.100.1",
                "ansible_ssh_args": "-o StrictHostKeyChecking=no -o Compression=yes",
                "ansible_ssh_common_args": "-J jump",
                "ansible_host_key_checking": False,
                "ansible_ssh_host_key_checking": False,
                "ansible_ssh_executable": "/bin/sh",
                "ansible_connection": "local",
                "their_own": 1,
            },
        }
    )
    assert (entry["ansible_user"], entry["ansible_become"]) == ("admin", True)
    assert (entry["ansible_host"], entry["ansible_port"]) == ("198.51.100.1", 2)
    assert entry["ansible_ssh_common_args"] == "-J jump"
    assert entry["ansible_host_key_checking"] is True
    assert entry["ansible_connection"] == "ssh"
    assert not {"ansible_ssh_executable", "their_own"} & set(entry)
    options = ssh_sees(entry)
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["compression"] == "yes"


def test_a_host_gets_nothing_of_the_operators_machine(tmp_path):
    """No setting in their ssh_config changes that, for one host or for all."""
    theirs = tmp_path / "config"
    theirs.write_text(
        "ForwardAgent yes\nForwardX11 yes\nForwardX11Trusted yes\nTunnel yes\n"
        "PermitLocalCommand yes\nLocalCommand id\n"
        "GSSAPIAuthentication yes\nGSSAPIDelegateCredentials yes\n"
        "RemoteForward 9000 localhost:22\nLocalForward 9001 localhost:22\n"
    )
    options = ssh_sees(inventory(), theirs)
    for name in ("forwardagent", "forwardx11", "permitlocalcommand"):
        assert (name, options[name]) == (name, "no")
    assert options["tunnel"] in ("no", "false")
    assert options["clearallforwardings"] == "yes"
    # An ssh without GSSAPI does not show it.
    assert options.get("gssapidelegatecredentials", "no") == "no"


@pytest.mark.parametrize(
    "text", ["-oProxyCommand=id", "-oProxyCommand", "-x", "-", "", "a b", "{{ a }}"]
)
def test_what_ssh_would_take_for_an_option_is_no_address(text):
    assert "neither a name nor" in why_not_asked(host(address=text)).sentence


@pytest.mark.parametrize("text", ["a-x", "192.0.2.1", "fe80::1%eth0", "::1", "x_y.z"])
def test_addresses(text):
    assert why_not_asked(host(address=text)) is None


def ssh_sees(entry, file="/dev/null") -> dict[str, str]:
    """Return the options as ssh itself reads them."""
    if shutil.which("ssh") is None:
        pytest.skip("ssh itself reads the options, and is not here")
    words = shlex.split(entry["ansible_ssh_args"])  # as Ansible does
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(file), *words, "192.0.2.1"],
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(line.split(" ", 1) for line in shown.stdout.splitlines())


def test_a_password_of_the_operators_inventory_is_asked_for_by_ssh():
    entry = inventory({"hv1": {"ansible_password": "x"}})
    assert "BatchMode" not in entry["ansible_ssh_args"]


def test_an_ssh_key_that_is_not_there_is_said_at_once(tmp_path):
    with problem("ssh-key-unreadable", tmp_path / "none", "--ssh-key") as caught:
        Access(key=str(tmp_path / "none"))
    assert caught.type is UsageProblem


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("echo odd >&2; exit 1", ": odd"),
        ("echo nothing", ""),
        ("echo '[]'", ""),
        ("exit 3", "exit status 3"),
        ("printf '\\377'", "can't decode byte 0xff"),
        ("head -c 100000 /dev/zero | tr '\\0' '['", "recursion"),
    ],
)
def test_an_inventory_that_ansible_cannot_read(tmp_path, script, part):
    with problem("inventory-unreadable", tmp_path, part, "ansible-inventory"):
        read_inventory(str(tmp_path), ("/bin/sh", "-c", script))


def test_an_inventory_that_prints_without_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "MOST_BYTES", 1000)
    with problem("inventory-unreadable", tmp_path, "it prints more than 1000 bytes"):
        read_inventory(str(tmp_path), ("/bin/sh", "-c", "while :; do echo x; done"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", errno.ENOENT),
        ("file/below", errno.ENOTDIR),
        ("loop", errno.ELOOP),
        ("x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_an_inventory_that_cannot_be_opened(tmp_path, name, reason):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    where = tmp_path / name
    with problem("inventory-missing", where, os.strerror(reason), "--inventory") as one:
        read_inventory(str(where))
    assert one.type is UsageProblem


def test_an_inventory_that_only_others_can_read(tmp_path, monkeypatch):
    """Ansible only warns of it, and has no variables."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with problem("inventory-missing", tmp_path, os.strerror(errno.EACCES)):
        read_inventory(str(tmp_path))


def test_an_inventory_from_a_folder_that_is_removed(tmp_path, monkeypatch):
    listed = 'echo \'{"_meta": {"hostvars": {}}}\''
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert read_inventory(str(tmp_path), ("/bin/sh", "-c", listed)) == {}
    with problem("inventory-missing", os.strerror(errno.ENOENT)):
        read_inventory(".")


def test_inventories_that_cannot_be_asked(tmp_path):
    with problem("ansible-missing", "no-such-command", "ansible-core"):
        read_inventory(str(tmp_path), ("no-such-command",))


def test_an_inventorys_script_sees_no_secret_of_ours(tmp_path, monkeypatch):
    for name in ("OVIRT_PASSWORD", "OVIRT_TOKEN", "SSH_AUTH_SOCK", "AWS_SECRET_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "a file")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    program = (
        "import json, os; print(json.dumps({'_meta': {'hostvars': "
        "{'hv1': dict(os.environ)}}}))"
    )
    seen = read_inventory(str(tmp_path), (sys.executable, "-c", program))["hv1"]
    assert "secret" not in seen.values()
    assert seen["ANSIBLE_VAULT_PASSWORD_FILE"] == "a file"
    assert seen["https_proxy"] == "http://proxy:3128"
    assert seen["PATH"]


def test_variables_of_an_inventory(tmp_path):
    listed = {"_meta": {"hostvars": {"hv1": {"ansible_user": "a"}}}}
    command = ("/bin/sh", "-c", f"echo '{json.dumps(listed)}'")
    assert read_inventory(str(tmp_path), command) == {"hv1": {"ansible_user": "a"}}


def order(**more: object) -> AnsibleRun:
    inventory = {"all": {"hosts": {"host-0": {}, "host-1": {}}}}
    return AnsibleRun("echo hi", inventory, {"known_hosts": "text"}, **more)


@pytest.fixture
def ansible(tmp_path):
    """Make an ansible-runner that runs ``script`` (Python) in its folder."""

    def made(script: str) -> str:
        top = tmp_path / "bin"
        top.mkdir()
        for name in ("ansible-runner", "ansible-playbook"):
            (top / name).write_text(f"#!{sys.executable} -IS\n{script}\n")
            (top / name).chmod(0o755)
        return f"{top}:/usr/bin:/bin"

    return made


def event(kind: str, alias: str, **result: object) -> str:
    data = {"event": kind, "event_data": {"host": alias, "res": result}}
    return f"print({json.dumps(json.dumps(data))}, flush=True)"


def test_events_are_told_as_they_come(ansible, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    path = ansible(
        "\n".join(
            [
                "import os, sys",
                "assert sys.argv[1:3] == ['run', os.environ['ANSIBLE_CONFIG'][:-12]]",
                "assert '--json' in sys.argv",
                "os.chdir(sys.argv[2])",
                "assert open('known_hosts').read() == 'text'",
                "assert open('script.sh').read() == 'echo hi'",
                event("playbook_on_start", "x"),
                "print('no JSON')",
                event("runner_on_ok", "host-0", stdout="out"),
                event("runner_on_failed", "host-1", msg="a", stderr="b", stdout=""),
                event("runner_on_unreachable", "host-1", msg="c"),
                "sys.exit(4)",
            ]
        )
    )
    outcomes = list(run_order(order(), str(folder), path))
    assert [one[:3] for one in outcomes] == [
        ("host-0", OK, "out"),
        ("host-1", FAILED, "a\nb"),
        ("host-1", UNREACHABLE, "c"),
    ]
    assert outcomes[1].result == {"msg": "a", "stderr": "b", "stdout": ""}


def test_the_operators_ansible_settings_take_no_part(ansible, tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_SSH_ARGS", "-o StrictHostKeyChecking=no")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    path = ansible(
        "import json, os\n"
        "print(json.dumps({'event': 'runner_on_ok', 'event_data': {'host': 'host-0',"
        " 'res': {'stdout': json.dumps(dict(os.environ))}}}))"
    )
    (happened,) = run_order(order(), str(tmp_path), path)
    environment = json.loads(happened.text)
    assert "ANSIBLE_SSH_ARGS" not in environment
    assert environment["SSH_AUTH_SOCK"] == "/tmp/agent"


def test_an_ansible_that_does_not_start_is_one_problem(ansible, tmp_path):
    path = ansible("import sys; sys.exit('it is broken')")
    with problem("ansible-failed", "exit status 1: it is broken") as caught:
        list(run_order(order(), str(tmp_path), path))
    assert caught.type is AnsibleProblem


def test_a_line_without_end_takes_limited_memory(ansible, tmp_path, monkeypatch):
    monkeypatch.setattr(ansible_run, "MOST_BYTES", 5)
    monkeypatch.setattr(ansible_run, "_PIPE_BYTES", 4)
    path = ansible("print('x' * 100_500 + ' the end', flush=True); raise SystemExit(1)")
    with problem("ansible-failed", "exit status 1: ") as caught:
        list(run_order(order(), str(tmp_path), path))
    assert str(caught.value).endswith("exit status 1: end")


def test_a_line_that_comes_in_pieces_is_one(ansible, tmp_path, monkeypatch):
    monkeypatch.setattr(ansible_run, "MOST_BYTES", 1000)
    path = ansible(
        "import contextlib, io, sys, time\n"
        "with contextlib.redirect_stdout(io.StringIO()) as line:\n"
        f"    {event('runner_on_ok', 'host-0', stdout='out')}\n"
        "for piece in (line.getvalue()[:20], line.getvalue()[20:]):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.5)"
    )
    outcomes = list(run_order(order(), str(tmp_path), path))
    assert [one[:3] for one in outcomes] == [("host-0", OK, "out")]


@pytest.mark.parametrize(
    ("there", "missing", "package"),
    [
        ("ansible-playbook", "ansible-runner is not installed", "ansible-runner"),
        ("ansible-runner", "ansible-playbook is not installed", "ansible-core"),
    ],
)
def test_without_ansible_the_package_is_named(tmp_path, there, missing, package):
    (tmp_path / there).touch(0o755)
    with problem("ansible-missing", missing, package, "--facts-dir") as caught:
        list(run_order(order(), str(tmp_path), str(tmp_path)))
    assert caught.type is AnsibleProblem


HANGS = (
    "import signal, subprocess, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen(['/bin/sleep', '60'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    + event("runner_on_ok", "host-0", stdout="x")
    + "\ntime.sleep(60)"
)


def processes_with(folder: Path) -> list[int]:
    return [
        pid
        for pid in ansible_run._processes_of(folder)
        if b"State:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    ]


def wait_for_none(folder: Path) -> None:
    for _ in range(6000):
        if not processes_with(folder):
            return
        time.sleep(0.01)  # a killed process takes a moment to go
    raise AssertionError("processes of the run are left")


def test_a_run_over_its_limit_is_ended_with_all_its_processes(
    ansible, tmp_path, monkeypatch
):
    monkeypatch.setattr(ansible_run, "_STOPPING_S", 0.05)
    timers = []

    class Timer(threading.Timer):
        """A timer that the test fires itself, so that a busy machine does not."""

        def start(self):
            timers.append(self)

    monkeypatch.setattr(ansible_run.threading, "Timer", Timer)
    events = run_order(order(), str(tmp_path), ansible(HANGS))
    assert next(events)[:3] == ("host-0", OK, "x")
    (timer,) = timers
    assert timer.interval == order().whole_limit_s
    timer.function(*timer.args)
    assert list(events) == [late("host-0"), late("host-1")]
    wait_for_none(tmp_path)


def late(alias: str) -> HostOutcome:
    """What run_order says of a host if its limit has ended."""
    return HostOutcome(alias, LATE, "no answer", {"after_s": order().whole_limit_s})


def test_a_host_that_is_late_has_not_ended_without_the_last_task(monkeypatch):
    """The role may still be running there: nothing says that it is not complete."""

    def run(order, folder):
        yield HostOutcome("host-0", OK, "", {}, "ovirt-rdma: install the package")
        yield from map(late, order.inventory["all"]["hosts"])

    monkeypatch.setattr(ansible_hosts, "trusted_collections", list)
    door = AnsibleHosts(run=run)
    found = door.prepare([host(), host("hv2")], {})
    assert found["hv1"].problem == (
        "the role did not end in 4 minutes, and may still be running there; its last "
        "task that ended is 'ovirt-rdma: install the package'"
    )
    assert found["hv2"].problem == "hv2 did not answer in time"
    reports = AnsibleHosts(run=lambda *_: map(late, ["host-0"])).reports([host()])
    assert reports["hv1"].problem == "hv1 did not answer in time"


def test_a_caller_that_goes_leaves_no_process(ansible, tmp_path, monkeypatch):
    """Ctrl-C does that, in the middle of the hosts."""
    monkeypatch.setattr(ansible_run, "_STOPPING_S", 0.05)
    events = run_order(order(), str(tmp_path), ansible(HANGS))
    next(events)
    assert processes_with(tmp_path)
    events.close()
    wait_for_none(tmp_path)


def test_a_signal_that_does_not_interrupt_a_read_is_handled(ansible, tmp_path):
    """As one that comes just before it: here another thread gets it."""

    def stop(*_):
        raise KeyboardInterrupt

    def send():
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    path = ansible(
        f"import time; {event('runner_on_ok', 'host-0', stdout='x')}\n"
        f"time.sleep(20); open({str(tmp_path / 'ended')!r}, 'w')"
    )
    earlier = signal.signal(signal.SIGUSR1, stop)
    try:
        events = run_order(order(), str(tmp_path), path)
        next(events)
        timer = threading.Timer(0.5, send)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(events)
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert not (tmp_path / "ended").exists()


def test_the_limit_grows_with_the_rounds():
    many = {"all": {"hosts": dict.fromkeys(map(str, range(250)))}}
    assert AnsibleRun("", many, {}, forks=20, limit_s=90).whole_limit_s == 60 + 13 * 100


def test_the_private_folder_is_ours_alone_and_goes():
    with ansible_run.private_folder() as folder:
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
        (Path(folder) / "a").mkdir()
    assert not Path(folder).exists()


def test_what_others_put_in_the_temporary_folder_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(ansible_run.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "ovirt-rdma-long").symlink_to("x" * 300)
    (tmp_path / "ovirt-rdma-loop").symlink_to("ovirt-rdma-loop")
    (tmp_path / "ovirt-rdma-theirs").mkdir(mode=0)
    with ansible_run.private_folder() as folder:
        assert Path(folder).exists()
    assert len(list(tmp_path.iterdir())) == 3
