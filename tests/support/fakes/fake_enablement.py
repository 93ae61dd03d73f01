# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake host for enable and disable: a root folder and its tools."""

from __future__ import annotations

import os
import signal

from ovirt_rdma.host.collect import software
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    POLICY_JSON,
    RUN_LOCK,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.services import enablement
from ovirt_rdma.host.services.enablement import disable, enable
from ovirt_rdma.host.system.commands import CommandFailed
from support.fakes.fake_processes import VDSM, run_process
from support.killed import is_killed

RELOAD = ("systemctl", "daemon-reload")
RESTART = ("systemctl", "try-restart", "vdsmd.service")
START = ("systemctl", "start", "--no-block", "ovirt-rdmad.service")
STOP = ("systemctl", "stop", "--no-block", "ovirt-rdmad.service")
SHOW = ("systemctl", "show", "-p", "LoadState,ActiveState", "ovirt-rdmad.service")
KERNEL = "6.12.0-55.el10.x86_64"


def rdma_rule(**more):
    return NfsRule(1, "rule 1", "10.0.0.1", "/vm", "require-rdma", **more)


def policy_of(*rules):
    return Policy(nfs=NfsPolicy(rules))


class Host:
    """A fake root with the package installed, a strict systemctl and a fapolicyd.

    ``daemon`` are LoadState and ActiveState of its unit: a masked one cannot be
    started. ``fapolicyd`` is its state, or ``mute`` where its command fails, and
    ``trusted`` what a trust file names, each with ``size``. What --dump-db prints is
    as 1.3.2, 1.3.3, 1.4.5 and 2.0.1 printed it when built and run (2.0.1:
    src/cli/fapolicyd-cli.c, lines 221 and 316, src/library/database.c, lines 406 and
    410). Its exit code was 1 before 1.4.3.
    """

    def __init__(self, root):
        self.root = root
        self.commands = []
        self.daemon = ["loaded", "inactive"]
        self.fapolicyd = "active"
        self.trusted = []
        self.size = 512
        for path in (LAUNCHER, DROPIN_SOURCE, STOCK_VDSMD):
            self.write(path, "packaged\n")
        self.write("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
        under(root, ENABLED).parent.mkdir(parents=True)
        under(root, DROPIN_DIRECTORY).parent.mkdir(parents=True)

    def load(self, *rules):
        store(policy_of(*rules), "p.yaml", under(self.root, POLICY_JSON))

    def write(self, path, text):
        path = under(self.root, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, path, target):
        path = under(self.root, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def remove(self, path):
        under(self.root, path).unlink()

    def run(self, argv):
        if tuple(argv) == software.ACTIVE:
            return "inactive\n" if self.fapolicyd == "inactive" else "active\n"
        if tuple(argv) == software.DUMP:
            if self.fapolicyd == "mute":
                raise CommandFailed(
                    "mdb_env_open failed, error 2 No such file or directory", 4
                )
            digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            found = [
                "rpmdb /usr/share/a b",
                *(f"filedb {path}" for path in self.trusted),
            ]
            return "".join(f"{entry} {self.size} {digest}\n" for entry in found)
        if tuple(argv) == SHOW:
            load, active = self.daemon
            return f"LoadState={load}\nActiveState={active}\n"
        assert tuple(argv) in {RELOAD, RESTART, START, STOP}
        if tuple(argv) == START and self.daemon[0] == "masked":
            raise CommandFailed(f"Failed to start {argv[-1]}: Unit is masked.", 1)
        if tuple(argv) in {START, STOP}:
            self.daemon[1] = "active" if tuple(argv) == START else "inactive"
        self.commands.append(tuple(argv))
        return ""

    def enable(self, mode="vdsmd", **options):
        return enable(self.root, mode=mode, run=self.run, **options)

    def disable(self, **options):
        return disable(self.root, run=self.run, **options)

    def process(self, pid, *argv):
        """Let VDSM's user run vdsmd, or root another program."""
        user = VDSM if {*argv} & {LAUNCHER, STOCK_VDSMD} else 0
        run_process(self.root, pid, *argv, user=user)

    def tree(self):
        """Everything below the root except the run lock: path to kind and content."""
        return {
            str(path.relative_to(self.root)): (
                ("link", str(path.readlink()))
                if path.is_symlink()
                else ("folder", path.stat().st_mode)
                if path.is_dir()
                else ("file", path.read_bytes(), path.stat().st_mode)
            )
            for path in sorted(self.root.rglob("*"))
            if path not in _up_to(under(self.root, RUN_LOCK), self.root)
        }


def _up_to(path, root):
    return {path, *path.parents} - {root, *root.parents}


def run_until(run, done, end):
    """Call ``run``; after ``done`` steps call ``end`` instead of the next."""
    carry_out = enablement._carry_out_step
    steps = []

    def interrupted(step, *rest):
        if len(steps) == done:
            end()
        steps.append(step.id)
        carry_out(step, *rest)

    enablement._carry_out_step = interrupted
    try:
        run()
    finally:
        enablement._carry_out_step = carry_out


def killed_at_step(run, done):
    """Call ``run`` in a process that is killed before its step after ``done`` ones;
    say whether there was such a step.
    """

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    return is_killed(lambda: run_until(run, done, kill))
