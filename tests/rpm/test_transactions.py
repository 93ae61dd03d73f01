# SPDX-License-Identifier: GPL-2.0-or-later
"""Install, upgrade, downgrade, reinstall and erase the packages, with their scripts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.packages.built import EARLIER, EARLIER_MODULE, files
from support.packages.machine import DATABASE, Machine, differences

from ovirt_rdma.host import __version__
from ovirt_rdma.host.changes.journal import Journal, Ledger, Run
from ovirt_rdma.host.changes.kinds.kind import AtomicChange, Place
from ovirt_rdma.host.rules.base import Change
from ovirt_rdma.storage.benchmark.scratch import MOUNT

NAMES = ("python3-ovirt-rdma", "ovirt-rdma-host")
ALL = (*NAMES, "ovirt-rdma-engine", "ovirt-rdma-portal")
POLICY_TEXT = "version: 1\nnfs: {rules: [{server: nas1, transport: tcp}]}\n"
LINK = "/etc/systemd/system/vdsmd.service.d/50-ovirt-rdma.conf"
MARKER = "/etc/ovirt-rdma/enabled"
POLICY = "/etc/ovirt-rdma/policy.yaml"
DROP_IN = "/etc/ovirt-rdma/policy.d/50-data.yaml"
STATE = "/var/lib/ovirt-rdma"
BENCH = "/run/ovirt-rdma-bench"
STEP = "IPOIB-MODE-01/ib0"
NEW_VERSION = f"ovirt-rdma-host {__version__}\n"
# What systemd-tmpfiles makes at each boot.
PORTAL = {"/var/lib/ovirt-rdma/portal", "/var/lib/ovirt-rdma/portal/report.json"}
OF_TMPFILES = {"/run/ovirt-rdma", "/run/ovirt-rdma/mounts", *PORTAL}


def of(packages: dict[str, Path], names: tuple[str, ...] = NAMES) -> list[Path]:
    return [packages[name] for name in names]


def owned(packages: dict[str, Path], names: tuple[str, ...]) -> set[str]:
    """The paths of the packages, and the folders above them."""
    paths = {path for one in of(packages, names) for path in files(one)}
    return paths | {str(folder) for path in paths for folder in Path(path).parents}


def use(machine: Machine) -> dict[str, str]:
    """Enable, load a policy, and bring the journal and marks of a host that works."""
    machine.path(POLICY).write_text(POLICY_TEXT)
    machine.path(DROP_IN).write_text(POLICY_TEXT.replace("nas1", "nas2"))
    machine.shell("ovirt-rdma-host policy load && ovirt-rdma-host enable")
    record_a_run(machine.path(""))
    machine.path("/run/ovirt-rdma/mounts/degraded.json").write_text("{}")
    return state(machine)


def record_a_run(root: Path) -> None:
    """Write the journal of a run that has changed a netdev's mode."""
    change = Change("sysfs", "/sys/class/net/ib0/mode", "datagram", "connected")
    act = AtomicChange(
        *(STEP, "link-down", (change,)),
        place=Place("ib0"),
        lasting=False,
        run=1,
        boot="boot",
        found=("connected",),
    )
    journal, at = Journal(root), "2026-11-21T10:00:00Z"
    more = {"acts": (act,), "outcome": "done", "ended": at}
    run = Run(1, "apply", at, "ovirt-rdma-host apply", **more)
    journal.write(Ledger((run,)))


def state(machine: Machine) -> dict[str, str]:
    """What belongs to the host, not to the package."""
    ours = ("/etc/ovirt-rdma/", "/etc/systemd", "/run/ovirt-rdma/mounts/", f"{STATE}/")
    return {
        path: what
        for path, what in machine.tree().items()
        if path.startswith(ours) and not path.endswith(".rpmnew")
    }


@pytest.mark.parametrize("vdsm", [True, False])
def test_install_changes_nothing_but_its_own_files(make_machine, new, vdsm):
    machine = make_machine(vdsm=vdsm)
    before = machine.tree()
    output = machine.install(*of(new, ALL))
    written = set(differences(before, machine.tree()))
    assert written - owned(new, ALL) <= OF_TMPFILES
    assert machine.rpm("-V", "--nodeps", *ALL) == ""
    assert machine.calls() == ["daemon-reload"]
    if vdsm:
        assert output == ""
    else:
        sentence, fix = output.splitlines()
        assert "VDSM is not installed on this host" in sentence
        assert fix.startswith("fix: add the host to the engine")
    # Nothing was enabled, and stock vdsmd starts.
    assert not machine.path("/etc/systemd/system/multi-user.target.wants").is_dir() or (
        "ovirt-rdma" not in machine.shell("ls /etc/systemd/system/*.wants")
    )
    if vdsm:
        assert machine.start_vdsmd() == "stock vdsmd\n"
    assert machine.shell("ovirt-rdma-host status --help").startswith("usage:")


def test_what_install_writes_belongs_to_root(machine, new):
    machine.install(*of(new, ALL))
    for package in of(new, ALL):
        for path, mode in files(package).items():
            assert mode.endswith(" root root"), path
            assert mode[0] == "l" or (mode[5], mode[8]) == ("-", "-"), path
            status = machine.path(path).lstat()
            assert (status.st_uid, status.st_gid) == (0, 0), path


def test_erase_leaves_the_host_as_it_was(machine, new):
    before = machine.tree()
    machine.install(*of(new, ALL))
    machine.calls()
    assert machine.rpm("-e", *ALL) == ""
    assert differences(before, machine.tree()) == {}
    portal, stop, *rest = machine.calls()
    units = "ovirt-rdma-portal.socket ovirt-rdma-portal-data.timer"
    assert portal == f"--no-reload disable {units}"
    assert set(stop.split()) == {
        "stop",
        "ovirt-rdmad.service",
        "ovirt-rdma-block.service",
        "ovirt-rdma-rollback-*",
        "ovirt-rdma-opensm@*.service",
    }
    assert rest == [
        "--no-reload disable ovirt-rdma-opensm@.service",
        "reset-failed ovirt-rdma*",
    ]


def test_erase_of_an_enabled_host_without_changes(machine, new):
    before = machine.tree()
    machine.install(*of(new))
    machine.path(POLICY).write_text(POLICY_TEXT)
    machine.shell("ovirt-rdma-host policy load")
    for verb in ("enable", "disable", "enable"):
        machine.shell(f"ovirt-rdma-host {verb}")
        (changed,) = machine.rpm("-V", "--nodeps", *NAMES, check=False).splitlines()
        assert changed.endswith(f"  c {POLICY}")
    assert machine.start_vdsmd() == "stock vdsmd\n"
    output = machine.rpm("-e", *NAMES)
    left = set(differences(before, machine.tree()))
    # The admin's own policy, as rpm does with every edited file.
    assert left == {f"{POLICY}.rpmsave", "/etc/ovirt-rdma"}
    assert f"{POLICY} saved as {POLICY}.rpmsave" in output
    assert machine.start_vdsmd() == "stock vdsmd\n"


def test_erase_names_what_is_still_applied(machine, new):
    machine.install(*of(new))
    use(machine)
    journal = machine.path(f"{STATE}/journal.json").read_bytes()
    output = machine.rpm("-e", *NAMES)
    assert "these steps stay applied, and the journal is kept" in output
    assert STEP in output
    assert "fix: to undo them, install the package again, run ovirt-rdma-host" in output
    for path in (LINK, MARKER, "/run/ovirt-rdma"):
        assert not machine.path(path).exists(), path
        assert not machine.path(path).is_symlink(), path
    assert machine.path(f"{STATE}/journal.json").read_bytes() == journal
    assert machine.path(f"{STATE}/policy.json").exists()
    assert machine.path(DROP_IN).exists()
    # As promised.
    machine.install(*of(new))
    assert STEP in machine.shell("ovirt-rdma-host history -v")


@pytest.mark.parametrize("command_runs", [True, False])
@pytest.mark.parametrize("place", [MOUNT, "/run/ovirt-rdma/bench/mount"])
def test_erase_removes_nothing_from_an_export(machine, new, place, command_runs):
    """A benchmark and its keeper were killed, or somebody mounted an export there."""
    machine.install(*of(new))
    machine.shell(
        f"mkdir -p /run/export {place} && echo of a machine >/run/export/disk &&"
        f" mount --bind /run/export {place} && touch {Path(place).parent}/record"
        f" {Path(place).parent}/lock"
    )
    if not command_runs:
        machine.path("/usr/bin/python3").write_text("#!/bin/sh\nexit 1\n")
    machine.rpm("-e", *NAMES)
    assert machine.shell("cat /run/export/disk") == "of a machine\n"
    mounted = machine.shell(f"grep -c ' {place} ' /proc/self/mountinfo", check=False)
    # Ours is unmounted, that of others is not.
    assert mounted == ("0\n" if place == MOUNT and command_runs else "1\n")


def test_erase_when_the_command_does_not_run(machine, new):
    machine.install(*of(new))
    machine.shell("ovirt-rdma-host enable")
    machine.path("/usr/bin/python3").write_text("#!/bin/sh\nexit 1\n")
    machine.calls()
    machine.rpm("-e", *NAMES)
    assert not machine.path(LINK).is_symlink()
    assert not machine.path(MARKER).exists()
    assert machine.calls()[0] == "daemon-reload"


def test_erase_leaves_a_link_of_others(machine, new):
    machine.install(*of(new))
    machine.shell("ovirt-rdma-host enable --mode host")
    machine.shell(f"mkdir -p {Path(LINK).parent}; ln -s /opt/other.conf {LINK}")
    machine.path("/usr/bin/python3").write_text("#!/bin/sh\nexit 1\n")
    machine.rpm("-e", *NAMES)
    assert machine.path(LINK).is_symlink()


DISK = "/export/c1b2ef3e-0c5e-4f5c-9d3a-6a1b2c3d4e5f/images/disk"
_BENCH = """
from ovirt_rdma.storage.benchmark.scratch import Scratch
scratch = Scratch(identity="this machine")
with scratch.only_run():
    scratch.mount("nas1:/export", "soft", over_rdma=False)
    scratch.make(4096)
    print("mounted", flush=True)
    scratch.fio(["sleep", "600"], 600)
"""


def export(machine: Machine, name: str = "/export") -> str:
    """Make what a server exports on the machine, a file system of its own; return the
    path of a disk in it.
    """
    disk = DISK.replace("/export", name)
    machine.shell(
        f"mkdir {name}; mount -t tmpfs tmpfs {name}; mkdir -p {Path(disk).parent}; "
        f"echo data | tee {disk} {name}/file"
    )
    return disk


@pytest.mark.parametrize("works", [True, False], ids=["", "without our command"])
@pytest.mark.parametrize(
    "places",
    [
        (
            "/run/ovirt-rdma/bench/mount",
            "/run/ovirt-rdma/mounts",
            f"{BENCH}/mount",
            f"{STATE}/data",
            "/etc/ovirt-rdma/policy.d",
            "/usr/share/ovirt-rdma/data",
        ),
        ("/run/ovirt-rdma",),
        (BENCH,),
    ],
    ids=["below", "run", "bench"],
)
def test_erase_leaves_what_is_mounted_below_our_folders(machine, new, places, works):
    """R1 of the third review: `rm -rf` in %postun emptied what was mounted below."""
    machine.install(*of(new))
    disks = []
    for number, place in enumerate(places):
        disks.append(export(machine, f"/export{number}"))
        machine.shell(f"mkdir -p {place}; mount --bind /export{number} {place}")
    if not works:
        machine.path("/usr/bin/python3").write_text("#!/bin/sh\nexit 1\n")
    machine.rpm("-e", *NAMES)
    for number, disk in enumerate(disks):
        assert machine.path(disk).read_text() == "data\n", places[number]
        assert machine.path(f"/export{number}/file").read_text() == "data\n"


@pytest.mark.parametrize("killed", [False, True], ids=["running", "killed"])
def test_erase_ends_a_benchmark_and_unmounts_its_export(machine, new, killed):
    machine.install(*of(new))
    disk = export(machine)
    mount = machine.path("/usr/sbin/mount.nfs")
    mount.write_text('#!/bin/sh\nexec mount --bind /export "$2"\n')
    mount.chmod(0o755)
    bench = subprocess.Popen(
        machine.command("/usr/bin/python3", "-c", _BENCH),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert bench.stdout
    assert bench.stdout.readline() == "mounted\n"
    if killed:
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text()
        for pid in (*map(int, children.split()), bench.pid):
            os.kill(pid, signal.SIGKILL)
        bench.wait()
    machine.rpm("-e", *NAMES)
    assert bench.wait(30) != 0
    assert machine.path(disk).read_text() == "data\n"
    # The scratch folder is gone too.
    assert machine.shell("ls -A /export").split() == [Path(disk).parts[2], "file"]
    assert BENCH not in machine.shell("cat /proc/self/mountinfo")
    assert not machine.path(BENCH).exists()


def test_a_new_layer_of_ovirt_node_keeps_what_is_enabled(machine, new):
    """imgbased copies /etc first and installs the package then, for rpm the first time
    (osupdater.py on_new_layer, rpmpersistence.py on_os_upgraded).
    """
    guid = "0x0002c90300fb1231"
    link = (
        f"/etc/systemd/system/multi-user.target.wants/ovirt-rdma-opensm@{guid}.service"
    )
    unit = "/usr/lib/systemd/system/ovirt-rdma-opensm@.service"
    machine.shell(f"mkdir -p {Path(link).parent}; ln -s {unit} {link}")
    machine.install(*of(new))
    assert machine.path(link).is_symlink()


def test_units_are_read_again_before_vdsms_posttrans(machine, new, earlier):
    """VDSM's %posttrans restarts vdsmd; the drop-in must be that of this version."""
    machine.install(*of(earlier))
    machine.calls()
    machine.install(*of(new), words=["--noposttrans"])
    assert machine.calls() == ["daemon-reload"]


@pytest.mark.parametrize("way", ["upgrade", "downgrade", "reinstall"])
def test_enablement_and_state_stay(machine, new, earlier, way):
    first, second = {
        "upgrade": (earlier, new),
        "downgrade": (new, earlier),
        "reinstall": (new, new),
    }[way]
    machine.install(*of(first, ALL))
    before = use(machine)
    machine.calls()
    words = ["--oldpackage", "--replacepkgs"] if way != "upgrade" else []
    output = machine.install(*of(second, ALL), words=words)
    assert output == ""
    assert differences(before, state(machine)) == {}
    calls = machine.calls()
    assert "daemon-reload" in calls
    assert not [call for call in calls if "restart" in call or "disable" in call]
    version = EARLIER if second is earlier else __version__
    assert machine.shell("ovirt-rdma-host --version") == f"ovirt-rdma-host {version}\n"
    assert machine.start_vdsmd() == "stock vdsmd\n"
    # Nothing of the other version is left.
    module = "/usr/lib/python3.9/site-packages/ovirt_rdma/" + EARLIER_MODULE
    assert machine.path(module).exists() == (second is earlier)
    changed = machine.rpm("-V", "--nodeps", *ALL, check=False).splitlines()
    assert all(line.endswith(f"  c {POLICY}") for line in changed)
    shown = machine.shell("ovirt-rdma-host policy show -o json")
    assert '"server": "nas1"' in shown
    assert '"server": "nas2"' in shown
    assert STEP in machine.shell("ovirt-rdma-host history -v")


def test_the_policy_of_the_admin_is_kept(machine, new, earlier):
    machine.path("/etc/ovirt-rdma").mkdir()
    machine.path(POLICY).write_text("version: 1\n")
    output = machine.install(*of(earlier))
    assert f"{POLICY} created as {POLICY}.rpmnew" in output
    machine.install(*of(new))
    assert machine.path(POLICY).read_text() == "version: 1\n"


def test_a_broken_policy_is_reported_and_the_loaded_one_counts(machine, new, earlier):
    machine.install(*of(earlier))
    machine.path(POLICY).write_text(POLICY_TEXT)
    machine.shell("ovirt-rdma-host policy load")
    machine.path(POLICY).write_text("version: 1\nnsf: {}\nhost: 3\n")
    loaded = machine.path(f"{STATE}/policy.json").read_bytes()
    output = machine.install(*of(new))
    sentence, fix = output.splitlines()
    assert "the policy is invalid and was not loaded: " in sentence
    assert f"{POLICY}:2: nsf: unknown key" in sentence
    assert sentence.endswith(", and 1 more")
    assert fix == f"fix: correct {POLICY}, then: ovirt-rdma-host policy check"
    assert machine.path(POLICY).read_text().startswith("version: 1\nnsf")
    assert machine.path(f"{STATE}/policy.json").read_bytes() == loaded


def test_read_only_etc(machine, new, earlier):
    machine.install(*of(earlier))
    before = use(machine)
    machine.shell("mount --bind /etc /etc && mount -o remount,ro,bind /etc")
    machine.install(*of(new), check=False)
    machine.shell("umount /etc")
    assert differences(before, state(machine)) == {}
    assert machine.start_vdsmd() == "stock vdsmd\n"
    machine.install(*of(new), words=["--replacepkgs"])
    assert machine.rpm("-V", "--nodeps", *NAMES, check=False).count("\n") == 1


def test_disk_full(machine, new, earlier):
    machine.install(*of(earlier))
    before = use(machine)
    machine.shell("head -c 500M /dev/zero >/filled; true", check=False)
    failed = machine.install(*of(new), words=["--ignoresize"], check=False)
    assert "No space left" in failed or "failed" in failed
    machine.shell("rm /filled")
    assert differences(before, state(machine)) == {}
    assert machine.start_vdsmd() == "stock vdsmd\n"
    machine.install(*of(new), words=["--replacepkgs"])
    assert machine.shell("ovirt-rdma-host --version") == NEW_VERSION


def versions(machine: Machine) -> list[str]:
    """The version of each installed ovirt-rdma-host; both while one is replaced."""
    shown = machine.rpm("-q", "--qf", "%{VERSION}\\n", "ovirt-rdma-host")
    return sorted(shown.split())


def completes(machine: Machine, new: dict[str, Path], before: dict[str, str]) -> None:
    """vdsmd starts, nothing of the host is lost, and rpm can complete the work."""
    assert differences(before, state(machine)) == {}
    assert machine.start_vdsmd() == "stock vdsmd\n"
    machine.install(*of(new), words=["--replacepkgs"])
    assert machine.shell("ovirt-rdma-host --version") == NEW_VERSION
    assert versions(machine) == [__version__]
    changed = machine.rpm("-V", "--nodeps", *NAMES, check=False).splitlines()
    assert all(line.endswith(f"  c {POLICY}") for line in changed)
    # The launcher has written why it started stock vdsmd.
    assert set(differences(before, state(machine))) == {"/run/ovirt-rdma/mounts/vdsmd"}
    # VDSM runs each executable in these folders.
    hooks = machine.shell("ls /usr/libexec/vdsm/hooks/*/").split()
    assert set(hooks) - {"50_ovirt_rdma"} == {word for word in hooks if word[-1] == ":"}


def test_killed_between_new_and_old_files(machine, new, earlier):
    """In the script that runs after the new files are there, before the old ones go."""
    machine.install(*of(earlier))
    before = use(machine)
    systemctl = machine.path("/usr/bin/systemctl")
    text = systemctl.read_text()
    # rpm is the parent of the script's shell.
    kill = "kill -9 $(sed -n 's/^PPid:[^0-9]*//p' /proc/$PPID/status)"
    systemctl.write_text(text.replace("\n", f"\n{kill}\n", 1))
    machine.install(*of(new), check=False)
    systemctl.write_text(text)
    assert versions(machine) == [EARLIER, __version__]
    completes(machine, new, before)


def test_killed_while_files_are_written(machine, new, earlier):
    """rpm writes each file under another name first, and renames all of a package."""
    machine.install(*of(earlier))
    before = use(machine)
    hooks = machine.path("/usr/libexec/vdsm/hooks/before_network_setup")
    names = [f"/packages/{package.name}" for package in of(new)]
    words = ["rpm", "--dbpath", DATABASE, "-U", "--nodeps", *names]
    left: list[Path] = []
    for _ in range(20):
        rpm = subprocess.Popen(machine.command(*words), stderr=subprocess.DEVNULL)
        while rpm.poll() is None and not left:
            left = list(hooks.glob("*;*"))
        rpm.send_signal(signal.SIGKILL)
        rpm.wait()
        left = list(hooks.glob("*;*"))
        if left:
            break
        machine.install(*of(earlier), words=["--oldpackage", "--replacepkgs"])
    assert left
    # rpm names these files by the second of its start (rpmtsGetTid is a time), and
    # another transaction within that second finds its own names in use.
    while int(time.time()) <= int(left[0].name.rpartition(";")[2], 16):
        time.sleep(0.05)
    completes(machine, new, before)
