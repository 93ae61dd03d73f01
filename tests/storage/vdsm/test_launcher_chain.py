# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the chain from the unit's ExecStart to vdsmd with that of stock VDSM."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.storage.launcher_host import DROPIN, LAUNCHER, Host

from lab import systemd_unit, vdsm_packages

pytestmark = pytest.mark.hypervisor

LIBEXEC = "/usr/libexec/"
ADAPTER_PATH = f"{LIBEXEC}vdsm/daemonAdapter"
VDSM_HOST = vdsm_packages.CHECKOUT / "lab/vdsm_host"
STOCK_UNIT = (VDSM_HOST / "vdsmd.service").read_text()
LOGGER_TEXT = """#!/bin/sh
[ "$1 $2" = "-t vdsmd" ] && [ "$3 $4" = "-p user.warning" ] && echo "$5" > {log}
"""


class Service(Host):
    """A host with daemonAdapter, which runs the ExecStart of units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = (VDSM_HOST / "daemonAdapter").read_text()
        adapter = self.root / ADAPTER_PATH[1:]
        adapter.write_text(text.replace("#!/usr/bin/python3", f"#!{sys.executable}"))
        adapter.chmod(0o755)
        # Only root may set less than 0.
        self.change_vdsm("config", "\nconfig.set('vars', 'vdsm_nice', '1')")
        self.programs = self.root / "programs"
        self.programs.mkdir()
        logger = self.programs / "logger"
        logger.write_text(LOGGER_TEXT.format(log=self.root / "log"))
        logger.chmod(0o755)

    def run_unit(self, *files: str, shell: str = "") -> tuple[int, str]:
        """Run the ExecStart of the unit's ``files``; return exit code and output."""
        words = systemd_unit.exec_start(files)
        below = f"{self.root}{LIBEXEC}"
        words = [word.replace(LIBEXEC, below) for word in words]
        output = self.root / "output"
        output.write_text("")
        # The unit sends it to /dev/null.
        words = [word.replace("-1 /dev/null", f"-1 {output}") for word in words]
        if "-1" in words:
            words[words.index("-1") + 1] = str(output)
        if shell:
            words[words.index("/bin/sh")] = shell
        path = f"{self.programs}:{os.environ['PATH']}"
        code, _, _ = self.run(words, self.environment(PATH=path, LANG="C.UTF-8"))
        return code, output.read_text()

    def state(self, *files: str, shell: str = "") -> dict:
        code, output = self.run_unit(*files, shell=shell)
        assert code == 0
        return json.loads(output)


@pytest.fixture
def service(loaded_vdsm, tmp_path):
    made = Service(tmp_path, loaded_vdsm.path)
    yield made
    made.close()


def _shells():
    return [shell for shell in ("/bin/dash", "/bin/bash") if Path(shell).exists()]


OF_STOCK = ("folder", "umask", "nice", "files", "signals", "environment", "sys.path")


@pytest.mark.parametrize("shell", _shells())
def test_the_dropin_starts_the_launcher_with_everything_as_stock(service, shell):
    # As in stock VDSM: some libraries of VDSM add to sys.path.
    text = service.stock.read_text()
    service.stock.write_text(text.replace("\nstate(", "\nimport vdsm.vdsmd\nstate("))
    stock = service.state(STOCK_UNIT)
    ours = service.state(STOCK_UNIT, DROPIN.read_text(), shell=shell)
    assert (stock["ran"], ours["ran"]) == ("stock", "main")
    assert {key: ours[key] for key in OF_STOCK} == {key: stock[key] for key in OF_STOCK}
    assert stock["nice"] == min(os.nice(0) + 1, 19)
    (line,) = service.log
    assert "NFS connections are made by" in line


def _without_execute(path):
    path.chmod(0o644)


def _interpreter_refused(path):
    """fapolicyd does not trust the file: execve fails, but test -x does not."""
    _, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b"#!/nonexistent/python3\n" + rest)


def _cut(at):
    def cut(path):
        data = path.read_bytes()
        place = len(data) + at if at < 0 else at
        path.write_bytes(data[:place])

    return cut


def _cut_before(text):
    def cut(path):
        data = path.read_bytes()
        assert data.count(text) == 1
        path.write_bytes(data.partition(text)[0])

    return cut


def _nuls(first, last):
    """The tenths of the file that are NULs, as after a power cut."""

    def overwrite(path):
        data = bytearray(path.read_bytes())
        places = slice(len(data) * first // 10, len(data) * last // 10)
        data[places] = bytes(len(data[places]))
        path.write_bytes(data)

    return overwrite


DAMAGES = {
    "gone": Path.unlink,
    "not executable": _without_execute,
    "interpreter refused": _interpreter_refused,
    "empty": _cut(0),
    "one byte": _cut(1),
    "half of the interpreter's name": _cut(10),
    "one line without its end": _cut_before(b"\n# SPDX"),
    "one line": _cut_before(b"# SPDX"),
    "in the docstring": _cut(200),
    "a whole file of functions": _cut_before(b"if __name__"),
    "as soon as VDSM is started": _cut_before(b"    elif "),
    "before the answer": _cut_before(b'print("whole")'),
    "in the answer": _cut(-4),
    "what a shell would run": lambda path: path.write_text("echo whole\n"),
    "NULs": _nuls(0, 10),
    "NULs first": _nuls(0, 5),
    "NULs in the middle": _nuls(4, 6),
    "NULs last": _nuls(5, 10),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_launcher_that_cannot_run_gives_stock_and_one_line(service, damage):
    DAMAGES[damage](service.launcher)
    stock = service.state(STOCK_UNIT)
    for shell in _shells():
        ours = service.state(STOCK_UNIT, DROPIN.read_text(), shell=shell)
        assert ours == stock
        (line,) = service.log
        assert line.startswith("ovirt-rdma: starting stock vdsmd instead: ")
        assert f"{service.launcher} is missing, is not whole, or may not be run" in line


HANGS = "#!/bin/sh\n# python\nsleep 20\necho whole\n"
_MINUTE = "timeout -s KILL 60 "


@pytest.mark.parametrize("shell", _shells())
def test_a_launcher_that_never_answers_gives_stock(service, shell):
    service.launcher.write_text(HANGS)
    dropin = DROPIN.read_text()
    assert dropin.count(_MINUTE) == 1
    dropin = dropin.replace(_MINUTE, _MINUTE.replace("60", "1"))
    stock = service.state(STOCK_UNIT)
    assert service.state(STOCK_UNIT, dropin, shell=shell) == stock
    (line,) = service.log
    assert line.startswith("ovirt-rdma: starting stock vdsmd instead: ")


@pytest.mark.parametrize("shell", _shells())
def test_what_is_no_file_in_the_launchers_place_is_not_waited_for(service, shell):
    service.launcher.unlink()
    os.mkfifo(service.launcher, 0o755)
    ours = service.state(STOCK_UNIT, DROPIN.read_text(), shell=shell)
    assert ours["ran"] == "stock"


def test_a_launcher_cut_at_any_byte_never_says_that_it_is_whole(monkeypatch, capsys):
    """Without one process each; those of DAMAGES run the whole chain."""

    def refused(*_):
        pytest.fail("asked whether it is whole, it started something")

    monkeypatch.setattr(sys, "argv", [str(LAUNCHER), "--whole"])
    monkeypatch.setitem(sys.modules, "ovirt_rdma.storage.vdsm.launch", None)
    monkeypatch.setattr(os, "execve", refused)
    text = LAUNCHER.read_text()
    for end in range(len(text) + 1):
        try:
            code = compile(text[:end], str(LAUNCHER), "exec")
        except SyntaxError:
            continue
        with contextlib.suppress(Exception):  # for example, cut in a name
            exec(code, {"__name__": "__main__", "__file__": str(LAUNCHER)})
        # The last newline may be missing.
        assert capsys.readouterr().out == ("whole\n" if end > len(text) - 2 else "")


def test_a_fault_in_the_launcher_gives_stock_as_if_started_at_once(service):
    service.replace_our_package("1 / 0")
    assert service.state(STOCK_UNIT, DROPIN.read_text()) == service.state(STOCK_UNIT)
    assert len(service.log) == 1


def test_without_a_logger_stock_runs_all_the_same(service):
    service.launcher.unlink()
    (service.programs / "logger").write_text("#!/bin/sh\nexit 1\n")
    assert service.state(STOCK_UNIT, DROPIN.read_text())["ran"] == "stock"
    assert service.log == []


def test_the_exit_code_of_vdsms_main_reaches_systemd(service):
    service.change_vdsm("vdsmd", "def main(): raise SystemExit(3)")
    assert service.run_unit(STOCK_UNIT, DROPIN.read_text()) == (3, "")


def test_the_dropin_changes_execstart_only():
    lines = [
        line
        for line in DROPIN.read_text().replace("\\\n", "").splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[:2] == ["[Service]", "ExecStart="]
    assert [line.partition("=")[0] for line in lines[2:]] == ["ExecStart"]


def test_systemd_reads_the_dropin_as_we_do(tmp_path):
    """Check the unit with systemd's own tool, if it is installed."""
    unit = tmp_path / "vdsmd.service"
    unit.write_text(STOCK_UNIT)
    folder = tmp_path / "vdsmd.service.d"
    folder.mkdir()
    (folder / DROPIN.name).write_text(DROPIN.read_text())
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    about_us = [line for line in done.stderr.splitlines() if DROPIN.name in line]
    assert about_us == []
