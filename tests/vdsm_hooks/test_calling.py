# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that VDSM continues in time after every error in our hooks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from support.host.hook_host import ENTRIES, NAME, POINTS, PYTHON, network, setup

from ovirt_rdma.host.paths import CAPS_JSON

pytestmark = pytest.mark.hypervisor

BEFORE = "before_network_setup"
REQUEST = setup({"storage": network("ib0", bridged=True)})
# Seconds for the start of Python and the fork of the worker on a busy machine.
SLACK_S = 60.0


@pytest.fixture
def host(host):
    host.only(BEFORE)
    host.enable()
    host.ipoib("ib0")
    return host


@pytest.fixture
def file(host):
    """The data file of a request."""
    path = host.root.parent / "hook.json"
    path.write_text(json.dumps(REQUEST))
    return path


def call(host, *, point=BEFORE, data=None, **how):
    """Call a hook alone; return the finished process and the file's text after it."""
    file = host.root.parent / "hook.json"
    file.write_text(json.dumps(REQUEST) if data is None else data)
    done = subprocess.run(
        [host.entry(point)],
        env={"_hook_json": str(file), **how.pop("env", {})},
        capture_output=True,
        check=False,
        **how,
    )
    return done, file.read_text()


def quiet(done):
    """Whether the hook succeeded for VDSM, without output."""
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_three_entries_are_one():
    first, *others = (p for p in POINTS if p != "after_get_caps")
    text = (ENTRIES / first / NAME).read_bytes()
    assert all((ENTRIES / point / NAME).read_bytes() == text for point in others)
    assert all(os.access(ENTRIES / point / NAME, os.X_OK) for point in POINTS)


TROUBLE = {
    "raises": "raise ValueError('of ours')",
    "raises what is no Exception": "raise KeyboardInterrupt",
    "leaves with VDSM's code for stop": "sys.exit(2)",
    "leaves at once": "os._exit(2)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "is terminated": "os.kill(os.getpid(), signal.SIGTERM)",
    "answers nonsense": "return None",
    "answers another code": "return Answer(7, 'seven')",
    "prints": "print('x' * 100000); os.write(1, b'1'); os.write(2, b'2')\n"
    "return Answer()",
    "does not compile": "return (",
}


@pytest.mark.parametrize("what", TROUBLE)
def test_a_worker_that_goes_wrong_is_no_failure(what, vdsm, host):
    host.work(TROUBLE[what])
    assert vdsm.before_network_setup(REQUEST) == REQUEST
    assert quiet(call(host)[0])


@pytest.mark.parametrize("point", [p for p in POINTS if p != "after_get_caps"])
@pytest.mark.parametrize("module", ["main.py", "network.py"])
def test_a_module_that_does_not_compile(host, module, point):
    host.install(point)
    host.replace_module(module, "def work(:\n")
    assert quiet(call(host, point=point)[0])


def test_without_the_package(vdsm, host):
    shutil.rmtree(host.package.parent)
    assert vdsm.before_network_setup(REQUEST) == REQUEST
    assert quiet(call(host)[0])


BROKEN = {
    "empty": "",
    "torn": "{",
    "null": "null",
    "deep": "[" * 100000,
    "cut": '{"request": {"networks"',
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_data_file_that_is_broken_stays_as_it_is(host, data):
    done, after = call(host, data=data)
    assert quiet(done)
    assert after == data


def test_a_data_file_that_is_not_there(host):
    for env in ({"_hook_json": "/nonexistent/x"}, {"_hook_json": ""}):
        done, _ = call(host, env=env)
        assert quiet(done)
    done = subprocess.run(
        [host.entry(BEFORE)], env={}, capture_output=True, check=False
    )
    assert quiet(done)


HANGS = {
    "sleeps": "time.sleep(300)",
    "hears no signal": "for n in range(1, 65):\n"
    "    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\n"
    "time.sleep(300)",
    "waits for a tool": "subprocess.run(['sleep', '300'])",
}


@pytest.mark.parametrize("what", HANGS)
def test_a_worker_that_hangs_costs_its_time_and_no_more(what, vdsm, host, tmp_path):
    pid = tmp_path / "pid"
    host.work(f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n{HANGS[what]}")
    # On a busy machine a worker may not get to hang in its time: it has more then.
    for limit_s in (2.0, 8.0, 32.0):
        host.limit(BEFORE, limit_s)
        started = time.monotonic()
        assert vdsm.before_network_setup(REQUEST) == REQUEST
        assert time.monotonic() - started < limit_s + SLACK_S
        if pid.exists():
            break
    ended(int(pid.read_text()))


def ended(pid):
    """Wait until a process, and all of its session, has ended."""
    for _ in range(1000):
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return
        if all_zombies(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"process group {pid} did not end")


def all_zombies(group):
    """Whether no process of the group runs; a container's init may not reap them."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            return False
    return True


ROLLS_BACK = """\
def end(*_): raise RuntimeError
signal.signal(signal.SIGTERM, end)
try: time.sleep(300)
except RuntimeError: return Answer(STOP, 'rolled back')
"""


def test_what_a_worker_was_told_to_end_with_is_what_counts(host, hook_error, vdsm):
    host.limit(BEFORE, 3.0)
    host.work(ROLLS_BACK)
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(REQUEST)
    assert caught.value.value == (b"rolled back\n",)


def test_what_a_worker_leaves_behind_holds_nothing_of_vdsms(vdsm, host, tmp_path):
    """A child in its own session cannot be killed, like one that hangs in the kernel;
    with VDSM's pipes in it, they would stay open.
    """
    pid = tmp_path / "pid"
    host.work(
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True,"
        " close_fds=False)\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "return Answer()"
    )
    started = time.monotonic()
    try:
        assert vdsm.before_network_setup(REQUEST) == REQUEST
        assert time.monotonic() - started < SLACK_S
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_the_worker_has_no_file_of_its_callers(host, tmp_path):
    seen = tmp_path / "seen"
    host.work(
        "here = '/proc/self/fd'\n"
        "links = {n: f'{here}/{n}' for n in os.listdir(here)}\n"
        "files = {n: os.readlink(f) for n, f in links.items() if os.path.exists(f)}\n"
        f"open({str(seen)!r}, 'w').write(repr(files))\n"
        "return Answer()"
    )
    reading, writing = os.pipe()
    done, _ = call(host, pass_fds=(writing,))
    os.close(writing)
    os.close(reading)
    assert quiet(done)
    files = eval(seen.read_text())
    assert [files[n] for n in "012"] == ["/dev/null"] * 3
    # The pipe for its answer, and the folder that it lists.
    assert sum(path.startswith("pipe:") for path in files.values()) == 1


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("point", [BEFORE, "after_get_caps"])
def test_standard_files_that_are_closed(host, closed, point, tmp_path):
    if point == "after_get_caps":
        host.install(point)
        host.caps("NFS_RDMA")
    data = {**REQUEST, "additionalFeatures": []}
    file = tmp_path / "hook.json"
    file.write_text(json.dumps(data))

    def close():
        for number in closed:
            os.close(number)

    done = subprocess.run(
        [host.entry(point)],
        env={"_hook_json": str(file)},
        preexec_fn=close,
        check=False,
    )
    after = json.loads(file.read_text())
    if point == BEFORE:
        assert done.returncode == 2
        assert after == data
    else:
        assert done.returncode == 0
        assert after == {**data, "additionalFeatures": ["NFS_RDMA"]}


def test_a_caller_that_does_not_listen(host, file):
    """Nobody reads stderr: SIGPIPE must not become the exit code."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [host.entry(BEFORE)],
        env={"_hook_json": str(file)},
        stderr=writing,
        restore_signals=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 2


def test_a_hook_that_is_killed_takes_its_worker_along(host, file, tmp_path):
    host.limit(BEFORE, 3.0)
    pid = tmp_path / "pid"
    host.work(f"open({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(300)")
    hook = subprocess.Popen([host.entry(BEFORE)], env={"_hook_json": str(file)})
    while not (pid.exists() and pid.read_text()):
        time.sleep(0.02)
    hook.kill()
    hook.wait()
    ended(int(pid.read_text()))


def test_without_the_marker_nothing_of_ours_is_loaded(host):
    (host.root / "etc/ovirt-rdma/enabled").unlink()
    # Not an exception, which the entry would catch.
    host.replace_module("main.py", "import os\nos._exit(2)\n")
    assert quiet(call(host)[0])


def test_nothing_of_pythons_environment_counts(host, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit(2)\n")
    (tmp_path / "sitecustomize.py").write_text("print('here')\n")
    done, _ = call(
        host, env={"PYTHONPATH": str(tmp_path), "PYTHONSTARTUP": "x"}, cwd=tmp_path
    )
    assert done.returncode == 2
    assert b"InfiniBand" in done.stderr


def in_own_dev(tmp_path, *words, script='_hook_json="$2" "$1"'):
    """Run a shell script, which calls a hook, where /dev has only null and a log."""
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "null").touch()
    # If TMPDIR is in memory, all files of the test are there.
    (dev / "shm").mkdir()
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(str(dev / "log"))
    log.settimeout(60)
    start = (
        'mount --bind /dev/null "$0/null" && mount --rbind /dev/shm "$0/shm" '
        '&& mount --rbind "$0" /dev || exit 99\n'
    )
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", start + script]
    try:
        done = subprocess.run(
            [*command, dev, *words], capture_output=True, timeout=120, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if (
        done.returncode in (1, 99) and b"unshare" in done.stderr
    ) or done.returncode == 99:
        pytest.skip(f"no namespaces here: {done.stderr.decode()}")
    return done, log


@pytest.mark.parametrize(
    "work, line",
    [
        (
            "raise ValueError('of ours')",
            "before_network_setup: nothing was done: ValueError: of ours (",
        ),
        ("return (", "before_network_setup: nothing was done: SyntaxError: "),
        (
            "time.sleep(300)",
            "before_network_setup: no answer within 2 s: stopped, VDSM continues",
        ),
    ],
)
def test_trouble_is_one_line_in_syslog(host, file, tmp_path, work, line):
    host.work(work)
    host.limit(BEFORE, 2.0)
    done, log = in_own_dev(tmp_path, host.entry(BEFORE), file)
    assert quiet(done)
    text = log.recv(65536).decode()
    assert "ovirt-rdma[" in text
    assert text.partition("]: ")[2].startswith(line)
    log.settimeout(0.1)
    with pytest.raises(OSError):  # nothing more comes
        log.recv(65536)


def test_the_line_about_a_run_that_was_rolled_back(host, file, tmp_path):
    host.work(ROLLS_BACK)
    host.limit(BEFORE, 3.0)
    done, log = in_own_dev(tmp_path, host.entry(BEFORE), file)
    assert (done.returncode, done.stderr) == (2, b"rolled back\n")
    line = log.recv(65536).decode().partition("]: ")[2]
    assert line.rstrip("\n\0") == "before_network_setup: no answer within 3 s: stopped"


@pytest.mark.parametrize("point", [BEFORE, "after_get_caps"])
def test_a_syslog_that_takes_nothing_holds_nobody(host, file, tmp_path, point):
    """journald hangs: its socket is full, and syslog(3) waits."""
    if point == BEFORE:
        host.work("raise ValueError('of ours')")
        host.limit(BEFORE, 2.0)
    else:
        host.install(point)
        host.write(CAPS_JSON, "{")
    fill = (
        "import socket\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.connect('/dev/log'); s.setblocking(False)\n"
        "try:\n"
        "    while True: s.send(b'x')\n"
        "except OSError: pass\n"
    )
    script = '"$3" -c "$4"; _hook_json="$2" "$1"'
    started = time.monotonic()
    words = (host.entry(point), file, PYTHON, fill)
    done, log = in_own_dev(tmp_path, *words, script=script)
    assert quiet(done)
    # after_get_caps has 2 s.
    assert time.monotonic() - started < 2.0 + SLACK_S
    log.close()
