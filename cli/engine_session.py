# SPDX-License-Identifier: GPL-2.0-or-later
"""What verbs of ``ovirt-rdma`` share: the engine that the words name, the way to its
hosts, the question before a change, and the calls that --dry-run shows.
"""

from __future__ import annotations

import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Optional

from ovirt_rdma.cli.engine_progress import engine_progress
from ovirt_rdma.cli.engine_settings import settings_of
from ovirt_rdma.cli.screen import Screen, terminal_width
from ovirt_rdma.engine_sdk_tools.call import Call
from ovirt_rdma.engine_sdk_tools.engine_facts import Engine
from ovirt_rdma.engine_sdk_tools.host_report import HostDoor
from ovirt_rdma.engine_sdk_tools.progress import Listener, Silent
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.wire import wire_form
from ovirt_rdma.host.problem import Problem, UsageProblem


class Declined(Problem):
    """The operator said no, or there is nobody to ask."""

    exit_code = 4


@contextmanager
def opened(words: Namespace) -> Iterator[Session]:
    """Give the session of the engine that the words name; closed after.

    Raises Problem where no engine is named, and where there is no password.
    """
    settings = settings_of(words)
    for sentence in settings.warnings:
        words.screen.message(f"warning: {sentence}")
    session = Session(replace(settings, warnings=()))
    session.listener = _Notes(words.screen)
    try:
        yield session
    finally:
        session.close()


def door_of(words: Namespace, engine: Optional[Engine] = None) -> Optional[HostDoor]:
    """Return the way to hypervisors that the words name; for root on the engine machine
    its own. None where there is none: hosts are unknown then.
    """
    if words.door is not None:
        door: HostDoor = words.door
        return door
    over_ssh = [one for one in (words.inventory, words.ssh_key, words.ssh_user) if one]
    if words.facts_dir is not None:
        if over_ssh:
            raise UsageProblem(
                "--facts-dir takes the place of SSH", "leave out one of them"
            )
        from ovirt_rdma.engine_sdk_tools.facts_folder import FactsFolder

        return FactsFolder(words.facts_dir)
    from ovirt_rdma.engine_sdk_tools.inventory import Access, default_key

    key = default_key()
    if not over_ssh and key is None:
        return None
    from ovirt_rdma.engine_sdk_tools.ansible_hosts import AnsibleHosts

    user = words.ssh_user or "root"
    return AnsibleHosts(Access(user, words.ssh_key or key, words.inventory))


def approve(words: Namespace, screen: Screen, plan: Iterable[str]) -> None:
    """Show the lines of ``plan`` and ask whether to go on, unless --assume-yes.

    Raises Declined where the answer is no, and without a terminal.
    """
    if words.assume_yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Declined(
            "nothing was changed: there is no terminal to ask on",
            "add --assume-yes, or --dry-run to see what would be done",
        )
    screen.flush()
    width = terminal_width(sys.stderr) or 80
    for line in plan:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, width, subsequent_indent=indent):
            screen.message(part)
    try:
        yes = screen.asked("Go on? [y/N] ")
    except KeyboardInterrupt:
        screen.message("")
        screen.message("note: nothing was changed")
        raise
    if not yes:
        raise Declined("nothing was changed: declined")


def show_calls(
    screen: Screen, calls: Sequence[Call], kind: str = "calls", **more: Any
) -> None:
    """Print the requests of ``calls`` as they would be sent, in order. ``more`` goes
    into the document, of ``kind``, beside them.
    """
    forms = [(call, wire_form(call)) for call in calls]
    if not screen.for_people:
        shown = [
            {
                "doing": call.doing,
                "about": call.about,
                "method": form.method,
                "path": form.path,
                "query": dict(form.query),
                "body": form.body,
            }
            for call, form in forms
        ]
        screen.document(kind, {"dry_run": True, **more, "calls": shown})
        return
    if not forms:
        screen.line("Nothing would be sent to the engine.")
    for number, (call, form) in enumerate(forms, 1):
        query = "&".join(f"{name}={value}" for name, value in form.query.items())
        screen.text(f"{call.doing}", hang=f"{number}. ")
        screen.line(f"   {form.method} {form.path}{'?' if query else ''}{query}")
        for line in form.body.splitlines():
            screen.line(f"   {line}")


def progress(words: Namespace, screen: Screen) -> Listener:
    """Return who shows the progress of long work; it ends with the verb."""
    listener = engine_progress(screen)
    words.at_end.callback(listener.close)
    return listener


class _Notes(Silent):
    """Prints what the operator should know while a verb reads."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def note(self, sentence: str) -> None:
        self._screen.message(f"note: {sentence}")
