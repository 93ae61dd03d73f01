# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's session of a verb: login, hosts to ask, questions, long work.

Asking hosts for a verb that only reads: which ones, how far it has come, and what is
said where there is no way to them.

What verbs of ``ovirt-rdma`` share: the engine that the words name, the way to its
hosts, the question before a change, and the calls that --dry-run shows.

Work that takes a while: its progress here, a job among the engine's tasks, and a
sentence on how to go on where it breaks off.
"""

from __future__ import annotations

import sys
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.engine.progress import engine_progress
from ovirt_rdma.cli.engine.settings import settings_of
from ovirt_rdma.cli.output import Screen, terminal_width
from ovirt_rdma.engine_sdk_tools.api.progress import Listener, Silent
from ovirt_rdma.engine_sdk_tools.api.request import Call, wire_form
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import no_report
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.job import END_S, EngineJob, Listeners
from ovirt_rdma.engine_sdk_tools.model import Engine, Host
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFile, load_policy_file

NO_WAY = (
    "the hosts were not asked: there is no way to them",
    "give --ssh-key, or --facts-dir with what they printed; root on the engine machine "
    "needs neither",
)


def asked(
    hosts: Sequence[Host], door: Optional[HostDoor], screen: Screen
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report; with one that says so, where nobody asks.

    Shows how many have answered on a terminal.
    """
    if door is None:
        for host in hosts:
            yield host, no_report(host)
        return
    answered = 0

    def done(_: str) -> None:
        nonlocal answered
        answered += 1
        screen.passing(f"{answered} of {len(hosts)} hosts have answered")

    screen.passing(f"asking {len(hosts)} hosts")
    yield from reports_of(hosts, door, done)
    screen.passing("")


def say_no_way(door: Optional[HostDoor], screen: Screen) -> None:
    """Say on stderr that no host is asked, and what to do, where that is so."""
    if door is None:
        sentence, fix = NO_WAY
        screen.message(f"note: {sentence}")
        screen.message(f"fix: {fix}")


def own_policy(words: Namespace) -> Optional[tuple[PolicyFile, Path]]:
    """Return the policy of --policy, or this machine's; None where it has none.

    Raises PolicyProblem.
    """
    if words.policy is not None:
        path = Path(words.policy)
        return load_policy_file(path), path
    path = Path(POLICY_YAML)
    return (load_policy_file(path), path) if path.exists() else None


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
                "options-exclude-each-other",
                "--facts-dir takes the place of SSH",
                "leave out one of them",
            )
        from ovirt_rdma.engine_sdk_tools.hosts.dumps import FactsFolder

        return FactsFolder(words.facts_dir)
    from ovirt_rdma.engine_sdk_tools.hosts.inventory import Access, default_key

    key = default_key()
    if not over_ssh and key is None:
        return None
    from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts

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
            "no-terminal",
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
        raise Declined("declined", "nothing was changed: declined")


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


class Work:
    """``listener`` is told how it goes on; it tells ``shown``, which is the progress
    here, and ``job``, the engine's. ``ended`` says how it ended.
    """

    def __init__(self, shown: Listener, job: Optional[EngineJob]) -> None:
        self.shown = shown
        self.job: Listener = job or Silent()
        self.listener = Listeners(shown, job) if job else shown
        self._open = job

    def ended(
        self, sentence: str, *, succeeded: bool, patience_s: float = END_S
    ) -> None:
        """End the job, with an event of the engine that says ``sentence``; tried for
        ``patience_s`` while the engine is away.
        """
        job, self._open = self._open, None
        if job is not None:
            job.finish(sentence, succeeded=succeeded, patience_s=patience_s)


@contextmanager
def work(
    words: Namespace,
    screen: Screen,
    session: Session,
    what: str,
    *,
    go_on: str,
    changes: bool = True,
) -> Iterator[Work]:
    """Give the Work that ``what`` describes ("create domain data2").

    Without ``--no-job`` it is a job of the engine, which ends as failed where an error
    goes through here; none where nothing ``changes``. ``go_on`` says how things
    stand where it breaks off: the operator interrupts it, or by a bug of ours.
    """
    shown: Listener = progress(words, screen)
    job = None
    if changes and not words.no_job:
        job = EngineJob(session, f"ovirt-rdma: {what}")
    done = Work(shown, job)
    try:
        yield done
    except Problem as problem:
        done.ended(f"{what} failed: {problem.one_line}", succeeded=False)
        raise
    except BaseException as error:
        # First what matters: ending the job may take a while, and be interrupted too.
        how = "was interrupted" if isinstance(error, KeyboardInterrupt) else "broke off"
        # The progress would take the line away with its own.
        words.at_end.close()
        screen.message(f"note: {what} {how}; {go_on}")
        done.ended(f"{what} {how}", succeeded=False, patience_s=0.0)
        raise
    done.ended(f"{what}: done", succeeded=True)
