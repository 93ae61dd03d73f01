# SPDX-License-Identifier: GPL-2.0-or-later
"""Mount an export for a benchmark, and leave nothing behind.

The mount is our own, below /run, with a scratch folder in it. Four things remove both:
this process at its end, whatever its reason; the keeper, a child process that waits for
this one to disappear (SIGKILL); the next run, which finds a record of what was left in
/run; and the erase of the package. The name of the scratch folder is this host's, so
that a run after a power cut finds it too: nobody else makes a folder of that name, and
who has the lock knows that its maker has ended.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import signal
import stat
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Callable, Optional

from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.export import nfs_check
from ovirt_rdma.host.paths import under
from ovirt_rdma.host.system.commands import (
    ENVIRONMENT,
    MOST_BYTES,
    CommandFailed,
    CommandTimeout,
    end_command,
    output_of,
    run_command,
)
from ovirt_rdma.host.system.files import fix_for, write_atomically
from ovirt_rdma.host.system.lock import (
    HolderTimeouts,
    LockHeld,
    lock_or_end_holder,
    one_run,
)
from ovirt_rdma.host.system.safe_file import has_line, read_file
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.messages import classify

# Not below /run/ovirt-rdma, which the package removes when it is erased.
FOLDER = "/run/ovirt-rdma-bench"
MOUNT = f"{FOLDER}/mount"
LOCK = f"{FOLDER}/lock"
# Present while there may be something to remove: the name of the scratch folder, and,
# once that may be in the export, export and options that mounted it last. A line each.
_RECORD = f"{FOLDER}/record"
_SCRATCH = ".ovirt-rdma-bench-"
_NAME = re.compile(re.escape(_SCRATCH) + "[0-9a-f]{12}")
_FILE = "data"
# Of its end, read back after it was written.
_END_BYTES = 4096

# mount.nfs waits 180 s for an RDMA peer that says nothing; its retry=0 does not help.
_MOUNT_S, _UNMOUNT_S, _REMOVE_S = 60.0, 20.0, 60.0
# The soft mount gives up after 40 s (timeo=100, retrans=3).
_FIO_S = 60.0
# A killed fio whose write is at the server ends when that answers.
_KILLED_S = 5.0
# What a run needs to remove everything: the times above. One that does not end within
# that is killed, and its keeper removes it.
_END = HolderTimeouts(0.0, 180.0, 180.0)
# fio starts when the keeper knows of it: if this process is killed before, the shell
# reads the end of the pipe.
_WHEN_TOLD = 'read -r go && exec "$@"'
# Exit codes of a shell whose program is missing, or cannot be executed: sh(1p).
_NOT_STARTED = (127, 126)
# The kernel shows it to root only. All digits are 0 or f where the firmware has none
# (DMTF DSP0134, System Information, UUID).
_HARDWARE = "/sys/class/dmi/id/product_uuid"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOOK = "look for it with findmnt, then umount -l it"


Run = Callable[[Sequence[str], float], str]
"""Runs an argument vector for at most that many seconds, as run_command does."""


class OtherBench(Problem):
    """Another benchmark is running on this host."""

    exit_code = ExitCode.OTHER_RUN


class Scratch:
    """The mount and the scratch folder of the host below ``root``.

    ``run`` runs mount.nfs, umount and rm; ``identity`` distinguishes this host from
    all others that use the export, as :func:`identity` does.
    """

    def __init__(
        self, root: str = "/", run: Run = run_command, identity: str = ""
    ) -> None:
        self._root = root
        self._run = run
        name = hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]
        self.name = f"{_SCRATCH}{name}"
        self.mountpoint = under(root, MOUNT)
        self.folder = self.mountpoint / self.name
        self._keeper: Optional[Keeper] = None
        # The file: open while its export is mounted; its number on the server.
        self._file: Optional[int] = None
        self._inode = 0
        # What is mounted, and what was when the file was seen last: export, options.
        self._mounted = self._seen = ("", "")

    @contextlib.contextmanager
    def only_run(self) -> Iterator[None]:
        """Hold the lock of all benchmarks, and remove what an earlier one left.

        Removes mount and scratch folder at the end, also if this process is killed.
        Raises OtherBench, and Problem if something cannot be removed.
        """
        with contextlib.ExitStack() as stack:
            with _in_folder():
                folder = under(self._root, FOLDER)
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                stack.enter_context(one_run(self._root, by="bench", lock=LOCK))
            except LockHeld:
                raise OtherBench(
                    "bench-other-run",
                    "another benchmark is running on this host",
                    "wait until it has ended: two would measure each other",
                ) from None
            self.clean()
            with _in_folder():
                self._keeper = Keeper(self.clean)
            why: Optional[BaseException] = None
            try:
                yield
            except BaseException as error:
                why = error
                raise
            finally:
                self._end(why)

    def _end(self, why: Optional[BaseException]) -> None:
        """Remove everything. Raises Problem if that fails, with the Problem ``why``."""
        keeper, self._keeper = self._keeper, None
        left: Optional[Problem] = None
        try:
            self.clean()
        except Problem as problem:
            left = problem
        except BaseException:
            if keeper:
                keeper.take_over()
            raise
        if keeper:
            keeper.end()
        if left and isinstance(why, Problem):
            both = Problem(why.id, f"{why}\n{left}", why.fix)
            both.exit_code = why.exit_code
            raise both from None
        if left and why is None:
            raise left

    def mount(self, export: str, options: str, *, over_rdma: bool) -> None:
        """Mount ``export``. Raises Problem with the reason of mount.nfs."""
        self._mounted = (export, options)
        with _in_folder():
            self._write_record()
        try:
            self._mount(export, options)
        except CommandTimeout:
            raise Problem(
                "bench-mount-timeout",
                f"{export} was not mounted within {_MOUNT_S:g} s with {options}",
                f"look whether the server is up: {nfs_check(export)}",
            ) from None
        except CommandFailed as error:
            found = classify(str(error).encode("utf-8", "surrogateescape"), over_rdma)
            raise Problem(
                "bench-mount-failed",
                f"{export} cannot be mounted with {options}: {found.meaning}"
                f" ({found.text})",
                found.fix,
            ) from None

    def _mount(self, export: str, options: str) -> None:
        with _in_folder():
            self.mountpoint.mkdir(mode=0o700, exist_ok=True)
        # Not mount(8), whose last line is about dmesg.
        command = ["mount.nfs", export, str(self.mountpoint), "-o", options]
        self._run(command, _MOUNT_S)

    def _write_record(self) -> None:
        text = "\n".join((self.name, *self._seen))
        write_atomically(under(self._root, _RECORD), os.fsencode(text), 0o600)

    def _see(self) -> None:
        """Record that the scratch folder is, or will be, in what is mounted."""
        with _in_folder():
            self._seen = self._mounted
            self._write_record()

    def domain(self) -> Optional[str]:
        """Return the name of a storage domain in the mounted export, or None.

        VDSM makes UUID/dom_md in it (VDSM, sd.DOMAIN_META_DATA). Raises Problem if it
        cannot look.
        """
        with _in_export(), os.scandir(self.mountpoint) as entries:
            names = [one.name for one in entries if _UUID.fullmatch(one.name)]
            folders = (self.mountpoint / name for name in names)
            return next((f.name for f in folders if (f / "dom_md").is_dir()), None)

    def free_space(self) -> tuple[int, int]:
        """Return the free bytes and all bytes of the mounted file system."""
        with _in_export():
            status = os.statvfs(self.mountpoint)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize

    def make(self, size: int) -> None:
        """Make the scratch folder in the mount, with a file of ``size`` bytes; a folder
        that is left there is removed. Raises Problem.
        """
        self._see()
        with _in_export():
            with contextlib.suppress(FileNotFoundError):
                # rm would empty what is mounted in its place.
                with self._opened_folder():
                    pass
                self._remove_folder(self.name)
            self.folder.mkdir(mode=0o700)
            new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with self._opened_folder() as folder, _opened(_FILE, new, folder) as file:
                # fio would remove a file that is too short, and make it again.
                os.truncate(file, size)
                self._inode = os.fstat(file).st_ino
        self.hold()

    def hold(self) -> None:
        """Open the file of :meth:`make`, after each mount. Raises Problem.

        Others may write to the export, and fio runs as root and follows links: it must
        get this file, and not what has its name now. O_PATH does not open a device.
        """
        try:
            with self._opened_folder() as folder:
                found = os.open(_FILE, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
                self._file = found
                mount, file = os.fstat(folder), os.fstat(found)
        except OSError as error:
            raise _replaced(error.strerror or str(error)) from None
        own = (mount.st_dev, self._inode)
        if not stat.S_ISREG(file.st_mode) or (file.st_dev, file.st_ino) != own:
            raise _replaced("it is another file")
        self._see()

    def check_written(self, size: int) -> None:
        """Check that the file has ``size`` bytes, and at its end no zeros, as before it
        was written: the server need not read what is not there. Raises Problem.
        """
        with _in_export(), _opened(self.file, os.O_RDONLY) as file:
            found = os.fstat(file).st_size
            end = os.pread(file, _END_BYTES, max(0, found - _END_BYTES))
        if found != size:
            raise incomplete(f"the file has {found} bytes, and not {size}")
        if not any(end):
            raise incomplete("the end of the file was not written")

    @contextlib.contextmanager
    def _opened_folder(self) -> Iterator[int]:
        """Open the scratch folder, if it is a folder of the mounted export itself."""
        only = os.O_PATH | os.O_DIRECTORY
        with contextlib.ExitStack() as stack:
            mount = stack.enter_context(_opened(str(self.mountpoint), only))
            own = _opened(self.name, only | os.O_NOFOLLOW, mount)
            folder = stack.enter_context(own)
            if os.fstat(folder).st_dev != os.fstat(mount).st_dev:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            yield folder

    @property
    def file(self) -> str:
        """The name by which fio opens the file: proc(5), /proc/PID/fd."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def _close(self) -> None:
        # An open file keeps the mount busy, and NFS renames it in place of removing it.
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def fio(self, arguments: Sequence[str], seconds: float) -> str:
        """Run fio, which should take ``seconds``; return its stdout. Raises Problem."""
        try:
            process = subprocess.Popen(
                ["sh", "-c", _WHEN_TOLD, "sh", *arguments],
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise missing(error.strerror or str(error)) from None
        try:
            if self._keeper:
                self._keeper.watch(process.pid)
            assert process.stdin  # noqa: S101  (for mypy)
            with contextlib.suppress(BrokenPipeError), process.stdin as shell:
                shell.write(b"go\n")
            out, err, broken = output_of(process, seconds + _FIO_S, MOST_BYTES)
            if broken:
                raise broken
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            end_command(process, _KILLED_S)
            if isinstance(error, CommandTimeout):
                export, _ = self._mounted
                raise Problem(
                    "bench-too-slow",
                    f"fio was still running after {seconds + _FIO_S:g} s: the server "
                    "answers too slowly to be measured, or no longer",
                    f"look at the server and the way to it: {nfs_check(export)}",
                ) from None
            if isinstance(error, CommandFailed):
                raise incomplete(str(error)) from None
            raise
        finally:
            if self._keeper:
                self._keeper.watch(0)
        if process.returncode < 0:
            raise incomplete(f"signal {-process.returncode} ended it")
        text = out.decode("utf-8", "surrogateescape")
        said = err.decode("utf-8", "surrogateescape")
        if process.returncode in _NOT_STARTED and not text:
            raise missing(said.strip().rpartition(": ")[2])
        if process.returncode and "{" not in text:
            known = (number for number in _FIXES if os.strerror(number) in said)
            number = next(known, None)
            raise failure(number) if number else incomplete(last_line(said))
        return text

    def unmount(self) -> None:
        """Unmount the export; the scratch folder stays for the next mount of it."""
        self._close()
        if not self.is_mounted():
            return
        for command in (["umount"], ["umount", "-f"], ["umount", "-l"]):
            with contextlib.suppress(CommandFailed):
                self._run([*command, str(self.mountpoint)], _UNMOUNT_S)
            if not self.is_mounted():
                return
        raise Problem(
            "bench-not-unmounted", f"{self.mountpoint} is still mounted", _LOOK
        )

    def clean(self) -> None:
        """Remove scratch folder, mount and record, if a benchmark left them. The export
        is mounted again for its folder. Raises Problem if something stays.
        """
        self._close()
        record = under(self._root, _RECORD)
        left: Optional[Problem] = None
        is_lost = False
        with _in_folder():
            try:
                text = os.fsdecode(read_file(record))
            except FileNotFoundError:
                return
            name, export, options = (*text.split("\n"), "", "")[:3]
            if _NAME.fullmatch(name):
                try:
                    if export and not self.is_mounted():
                        self._mount(export, options)
                    if self.is_mounted():
                        self._remove_folder(name)
                except CommandFailed as error:
                    is_lost, left = True, _left(name, export, error, record)
                except Problem as problem:
                    is_lost, left = bool(export) and not self.is_mounted(), problem
            self.unmount()
            with contextlib.suppress(FileNotFoundError):
                self.mountpoint.rmdir()
            if not is_lost:
                record.unlink()
        if left:
            raise left

    def is_mounted(self) -> bool:
        """Whether the kernel shows a mount at our mount point. Raises OSError."""
        return self._shown(os.fsencode(self.mountpoint).__eq__)

    def _shown(self, wanted: Callable[[bytes], bool]) -> bool:
        # proc(5): the fifth field is the mount point.
        return has_line(
            under(self._root, MOUNTINFO),
            lambda line: any(map(wanted, line.split(b" ", 5)[4:5])),
        )

    def _remove_folder(self, name: str) -> None:
        """Remove the scratch folder ``name`` from the mount; by a child, which a dead
        server cannot make wait longer than its time.
        """
        folder = self.mountpoint / name
        try:
            if self._shown(lambda place: place.startswith(os.fsencode(folder))):
                raise CommandFailed(f"something is mounted in {folder}", 1)
            command = ["rm", "-rf", "--one-file-system", "--", str(folder)]
            self._run(command, _REMOVE_S)
        except CommandFailed as error:
            raise Problem(
                "bench-scratch-left",
                f"the folder {name} stays in the export: {error}",
                "remove it when the server is up again; bench on this host does it too",
            ) from None


def _left(name: str, export: str, error: CommandFailed, record: Path) -> Problem:
    return Problem(
        "bench-scratch-left",
        f"the folder {name} stays in {export}, which cannot be mounted: {error}",
        "bench on this host removes it when the server is up again; to leave it there, "
        f"remove {record}",
    )


class Keeper:
    """A child process that calls ``clean`` if this process disappears.

    It reads a pipe: the ids of processes to end first, or nothing more.
    """

    def __init__(self, clean: Callable[[], None]) -> None:
        reading, self._pipe = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.close(self._pipe)
                _keep(reading, clean)
                code = 0
            finally:
                os._exit(code)
        os.close(reading)

    def watch(self, pid: int) -> None:
        """Have the process group ``pid`` ended too; 0: none."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"%d\n" % pid)

    def end(self) -> None:
        """End it: there is nothing left to remove."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"end\n")
        self.take_over()

    def take_over(self) -> None:
        """Have it do its work now; wait until it has ended."""
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _keep(reading: int, clean: Callable[[], None]) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # The terminal or pipe of the command must not stay open because of us.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    last = "0"
    with os.fdopen(reading) as lines:
        for line in lines:
            last = line.strip()
    if last == "end":
        return
    if last.isdecimal() and int(last) > 1:
        with contextlib.suppress(OSError):
            os.killpg(int(last), signal.SIGKILL)
    with contextlib.suppress(Problem, OSError):
        clean()


_SLOW = "the server did not answer in time: look whether it is up"
_FIXES = {
    errno.ENOSPC: "the file system of the server is full: free space there",
    errno.EDQUOT: "the quota of the server is used up: raise it",
    errno.EROFS: "the server exports it read-only: export it read-write",
    errno.EACCES: "the server refuses root: export it with no_root_squash, or to a "
    "folder that its anonymous user may write to",
    errno.EIO: _SLOW,
    errno.ETIMEDOUT: _SLOW,
    errno.ESTALE: "the server no longer knows the file: it was exported again",
}


def failure(number: int) -> Problem:
    """Return an error in the export, an errno, as a Problem."""
    try:
        reason = os.strerror(number)
    except (ValueError, OverflowError):
        reason = f"error {number}"
    return Problem(
        "bench-fio-failed",
        f"the export cannot be measured: {reason}",
        _FIXES.get(number, "look at the logs of this host and of the server"),
    )


def last_line(text: str) -> str:
    """Return the last line of what fio printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def incomplete(why: str) -> Problem:
    """Return a Problem for a fio that was killed, or printed something else."""
    return Problem(
        "bench-fio-incomplete",
        f"fio did not end as it should: {why[:200]}",
        "look whether something killed it (journalctl -k), then run bench again",
    )


def missing(why: str) -> Problem:
    """Return a Problem for a fio that is not installed, or does not start."""
    return Problem(
        "bench-fio-missing",
        f"fio cannot be run: {why}",
        "install it: dnf install fio fio-engine-libaio",
    )


def _replaced(why: str) -> Problem:
    return Problem(
        "bench-scratch-replaced",
        f"the file in the scratch folder is no longer the one of this run: {why}",
        "somebody else writes to the export: look who, or measure another one",
    )


@contextlib.contextmanager
def _opened(path: str, flags: int, folder: Optional[int] = None) -> Iterator[int]:
    """Open a file of the export, in ``folder``; a new one is root's alone."""
    descriptor = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _in_export() -> Iterator[None]:
    """Raise an error in the export as a Problem."""
    try:
        yield
    except OSError as error:
        raise failure(error.errno or errno.EIO) from None


@contextlib.contextmanager
def _in_folder() -> Iterator[None]:
    """Raise an error in our folder in /run, or of the kernel, as a Problem."""
    try:
        yield
    except OSError as error:
        place = Path(os.fsdecode(error.filename or FOLDER))
        raise Problem(
            "bench-folder-unusable",
            f"bench cannot use {place}: {error.strerror or error}",
            fix_for(error, place),
        ) from None


def end_benchmark(
    root: str, run: Run = run_command, say: Callable[[str], None] = lambda _: None
) -> None:
    """End the benchmark of the host below ``root``, and remove what one has left there,
    before the package is erased. ``say`` gets a sentence if one runs. Raises Problem if
    something stays.
    """
    folder, by = under(root, FOLDER), "erasing the package"
    if not folder.is_dir():
        return
    with contextlib.ExitStack() as stack:
        try:
            lock_or_end_holder(
                stack,
                root,
                by,
                is_needed=lambda: True,
                say=say,
                patience=_END,
                lock=LOCK,
            )
        except LockHeld:  # the keeper of a run that was killed is removing everything
            wait_s = _END.after_sigkill_s
            stack.enter_context(one_run(root, wait_s, by=by, lock=LOCK))
        try:
            Scratch(root, run).clean()
        except Problem as problem:
            if problem.id == "bench-scratch-left":
                problem.fix = "remove the folder on the server"
            raise
        with _in_folder():
            under(root, LOCK).unlink()
        # Not if there is something of others.
        with contextlib.suppress(OSError):
            folder.rmdir()


def identity(root: str) -> str:
    """Return what distinguishes this host from all others.

    A clone has the same machine-id(5), and perhaps the same name, but not the UUID of
    the hardware: the engine refuses a second host with it. Where there is none, a
    folder that a power cut has left is not known to be ours, and stays.
    """
    tree = FileTree(root)
    hardware, machine = (
        (tree.text(path) or "").lower() for path in (_HARDWARE, "/etc/machine-id")
    )
    if not hardware.strip("0f-"):
        hardware = str(uuid.uuid4())
    return "\n".join((hardware, machine, os.uname().nodename))
