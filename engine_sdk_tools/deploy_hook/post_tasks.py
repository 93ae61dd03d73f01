# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and replace the engine's post-tasks file: atomic, locked, with a backup.

Mode, owner, access control list and SELinux label stay as they are, and a symbolic link
stays a link. A second run at the same time gets exit code 75.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ovirt_rdma.engine_sdk_tools.deploy_hook.block import PostTasksProblem
from ovirt_rdma.host.system.files import fix_for, remove_unfinished, sync_directory
from ovirt_rdma.host.system.lock import LockHeld

# AnsibleConstants.HOST_DEPLOY_POST_TASKS_FILE_PATH
POST_TASKS = "/etc/ovirt-engine/ansible/ovirt-host-deploy-post-tasks.yml"
BACKUP = ".before-ovirt-rdma"
# The engine reads whole tasks into memory, several times.
_MOST_BYTES = 1_000_000
_NEW_MODE = 0o644


class PostTasksFile:
    """The file at ``path``, which may be missing or a symbolic link.

    Its folder must exist: an engine has it. Raises PostTasksProblem if there is none,
    or if the path is no regular file.
    """

    def __init__(self, path: str = POST_TASKS) -> None:
        self.named = self.path = Path(path)
        try:
            self.path = self.named.resolve(strict=False)
            broken = self.named.is_symlink() and not self.path.exists()
            folder = self.path.parent.is_dir()
        except RuntimeError:  # a loop of links; OSError since Python 3.13
            broken = True
        except OSError as error:
            broken = error.errno == errno.ELOOP
            if not broken:
                raise self._failed("read", error) from None
        if broken:
            raise PostTasksProblem(
                "post-tasks-link-broken",
                f"{path} is a symbolic link to a file that does not exist",
                "remove the link, or restore its target",
            )
        if not folder:
            raise PostTasksProblem(
                "post-tasks-no-engine",
                f"there is no folder {self.named.parent}: this is not an engine "
                "machine",
                "run this on the machine of the engine, or give --file",
            )

    @property
    def backup(self) -> Path:
        """The path of the copy from before the last change."""
        return self.path.with_name(self.path.name + BACKUP)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other run change the file. Raises LockHeld, PostTasksProblem."""
        try:
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._failed("open its folder", error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeld(
                    "post-tasks-locked",
                    f"another run of ovirt-rdma is changing {self.named}",
                    "wait until it has ended, then run this command again",
                ) from None
            remove_unfinished(self.path.parent)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> Optional[bytes]:
        """Return the content, None if the file is missing. Raises PostTasksProblem."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise PostTasksProblem(
                "post-tasks-no-file",
                f"{self.named} is not a regular file",
                "replace it by a file of tasks, or remove it",
            )
        with os.fdopen(descriptor, "rb") as stream:
            try:
                content = stream.read(_MOST_BYTES + 1)
            except OSError as error:
                raise self._failed("read", error) from error
        if len(content) > _MOST_BYTES:
            raise PostTasksProblem(
                "post-tasks-too-large",
                f"{self.named} has more than {_MOST_BYTES // 1_000_000} MB",
                "move the tasks to files of their own, and include them",
            )
        return content

    def replace(self, before: Optional[bytes], after: Optional[bytes]) -> None:
        """Write ``after`` in place of ``before``, which is kept as the backup; None is
        for a missing file. Raises PostTasksProblem; then the file is unchanged, but for
        post-tasks-not-durable, which is raised after the change.

        ``before`` is what :meth:`read` returned: if the file is not so any more, an
        editor has changed it meanwhile, and nothing is written.
        """
        if self.read() != before:
            raise PostTasksProblem(
                "post-tasks-changed-meanwhile",
                f"{self.named} was changed by somebody else in this moment",
                "run the command again",
            )
        if before is not None and self.path.stat().st_nlink > 1:
            own = shlex.quote(str(self.path))
            raise PostTasksProblem(
                "post-tasks-hard-links",
                f"{self.named} has a second name (a hard link), which would keep the "
                "old content",
                f"make it a file of its own: cp --preserve=all {own} {own}.new; "
                f"mv {own}.new {own}",
            )
        try:
            if before is not None:
                self._write(self.backup, before)
            if after is None:
                self.path.unlink(missing_ok=True)
            else:
                self._write(self.path, after)
        except OSError as error:
            raise self._failed("write", error) from error
        try:
            sync_directory(self.path.parent)
        except OSError as error:
            raise PostTasksProblem(
                "post-tasks-not-durable",
                f"{self.named} was changed, but the earlier file may be back after a "
                f"power cut: {error.strerror or error}",
                fix_for(error, self.path),
            ) from error

    def _write(self, path: Path, content: bytes) -> None:
        """Replace ``path``, with the attributes of the post-tasks file."""
        # The form of name that remove_unfinished knows.
        descriptor, name = tempfile.mkstemp(
            ".ovirt-rdma", f".{path.name}.", path.parent
        )
        try:
            with os.fdopen(descriptor, "wb") as stream:
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._like_the_file(descriptor)
                stream.write(content)
                stream.flush()
                os.fsync(descriptor)
                Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def _like_the_file(self, descriptor: int) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            os.fchmod(descriptor, _NEW_MODE)
            return
        if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        # After the owner, because a change of owner clears bits.
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        for name in _attributes(self.path):
            # The label, and the access control list.
            os.setxattr(descriptor, name, os.getxattr(self.path, name))

    def _failed(self, doing: str, error: OSError) -> PostTasksProblem:
        return PostTasksProblem(
            "post-tasks-not-accessible",
            f"cannot {doing} {self.named}: {error.strerror or error}",
            fix_for(error, self.path),
        )


def _attributes(path: Path) -> list[str]:
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EPERM):
            return []
        raise
