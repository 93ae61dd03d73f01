# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve /hosts: reading hosts with their hooks, maintenance, activation, and the
reinstallation, with the engine's surprising defaults.

What the playbook does to a host: ``world.more["post_tasks"]`` is called with the host,
changes it as the administrator's post-tasks would, and returns the names of the tasks;
``host.more["install_fails"]`` is the message with which a task fails, and
``host.more["install_error"]`` the number of tasks after which the playbook ends with an
error that is no task's (a role that is missing). ``host.more["reboot_fails"]``: it
cannot be restarted. ``host.more["engine_restarts"]``: the engine is restarted when the
tasks are done. ``host.more["vdsm_silent"]``: VDSM does not answer after them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, done, listed
from engine_double.behaviours import behaviour
from engine_double.host_life import begin_activation, lose_uncommitted
from engine_double.maintenance import begin_maintenance, check_deactivation
from engine_double.routing import Call, known, route
from engine_double.views import follow_links, followed, host_view, with_href
from engine_double.world import SimHook, SimHost, World, new_id

FOLLOW = ("nics", "network_attachments", "hooks")
_ACTIVATE = "bll/validator/HostValidator.java:136-148"
UP_ALREADY = behaviour(
    "UP-06",
    "A host that is up cannot be activated, also while its storage is not connected.",
    _ACTIVATE,
)
NO_ANSWER = behaviour(
    "UP-07", "A host that does not respond cannot be activated.", _ACTIVATE
)


@route("GET", "/hosts", query=("all_content",), follow=FOLLOW)
def list_hosts(call: Call) -> Answer:
    shown = [_shown(call, host) for host in call.world.hosts.values()]
    _time_passes(call)
    return listed("hosts", shown)


@route("GET", "/hosts/{host}", query=("all_content",), follow=FOLLOW)
def get_host(call: Call) -> types.Host:
    shown = _shown(call, known(call.world.hosts, call.ids["host"]))
    _time_passes(call)
    return shown


def _time_passes(call: Call) -> None:
    """Advance the move of SPM when hosts are read."""
    for centre in call.world.data_centers:
        call.world.transitions.shown(centre)


def _shown(call: Call, host: SimHost) -> types.Host:
    view = host_view(call.world, host)
    if not call.flag("all_content"):
        view.hosted_engine = None
    follow_links(call.world, "hosts", call.follow, host, view)
    call.world.transitions.shown(host.id)
    return view


@route("POST", "/hosts/{host}/deactivate", root="action", fields=("reason",))
def deactivate(call: Call) -> Answer:
    world = call.world
    host = known(world.hosts, call.ids["host"])
    check_deactivation(world, host, call.correlation_id)
    begin_maintenance(world, host, call.body.reason or "", call.correlation_id)
    return done()


@route("POST", "/hosts/{host}/activate", root="action")
def activate(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    if host.status == "up" and call.world.does(UP_ALREADY):
        raise Refusal(409, "Cannot activate Host. Host in Up status.")
    if host.status == "non_responsive" and call.world.does(NO_ANSWER):
        raise Refusal(409, "Cannot activate Host. Host is in non responsive state.")
    begin_activation(call.world, host, call.correlation_id)
    return done()


# -- hooks


@followed("hosts", "hooks")
def hooks_of(world: World, host: SimHost) -> list[types.Hook]:
    """The host's hooks as the API shows them."""
    return [_hook(host, one) for one in host.hooks]


def our_hooks() -> list[SimHook]:
    """The hooks of this checkout, as a host with the package reports them."""
    top = Path(__file__).parents[2] / "vdsm_hooks"
    files = sorted(top.glob("*/50_ovirt_rdma"))
    return [SimHook(file.name, file.parent.name) for file in files]


def _hook(host: SimHost, one: SimHook) -> types.Hook:
    name = new_id(f"{one.event} {one.name}")
    return with_href(
        types.Hook(
            id=name,
            name=one.name,
            event_name=one.event,
            host=types.Host(id=host.id),
        ),
        f"/hosts/{host.id}/hooks/{name}",
    )


# -- installation

STATUS = behaviour(
    "HOST-23",
    "A host is reinstalled only while it is Maintenance, NonOperational, "
    "InstallFailed or InstallingOS: 409.",
    "bll/validator/UpdateHostValidator.java:79-86",
)
_INSTALL = "bll/hostdeploy/InstallVdsInternalCommand.java"
FAILED = behaviour(
    "HOST-27",
    "An installation whose playbook fails leaves the host InstallFailed, with event "
    "505.",
    f"{_INSTALL}:354-364",
    f"{_INSTALL}:226-230",
)

_EXECUTOR = "ansible/AnsibleExecutor.java"
_CLIENT = "ansible/AnsibleRunnerClient.java"
LATER = behaviour(
    "HOST-29",
    "The installation begins after the request is answered: for a moment the host has "
    "the status it had.",
    "bll/hostdeploy/UpdateVdsCommand.java:203-206",
    "bll/PrevalidatingMultipleActionsRunner.java:181-183",
    f"{_INSTALL}:144",
)
SEVERITY = behaviour(
    "HOST-30",
    "Each task that succeeds is an event; 'TITLE [WARNING] TEXT' in its name is an "
    "event of that severity: 559 normal, 554 warning, 553 error, 557 alert.",
    f"{_EXECUTOR}:35-36",
    f"{_EXECUTOR}:109-136",
)
ERROR_IGNORED = behaviour(
    "HOST-31",
    "A playbook that ends with an error, and not with a failed task, has succeeded: "
    "the host is installed.",
    f"{_CLIENT}:57-77",
    f"{_CLIENT}:126-131",
)
SSH_FAILED = behaviour(
    "HOST-32",
    "A host that Ansible does not reach is InstallFailed, with event 505.",
    f"{_CLIENT}:112-117",
    f"{_INSTALL}:354-364",
)
NOT_RESTARTED = behaviour(
    "HOST-33",
    "An installed host that cannot be restarted is InstallFailed, with event 505.",
    f"{_INSTALL}:203-217",
    f"{_INSTALL}:121-133",
)

RESTARTED = behaviour(
    "HOST-34",
    "An engine that is restarted forgets an installation: the host becomes Unassigned, "
    "then what it is, and neither 504 nor 505 is written.",
    "vdsbroker/ResourceManager.java:183-188",
)
SILENT = behaviour(
    "HOST-35",
    "A host whose VDSM does not answer after the playbook is NonResponsive, with event "
    "505.",
    f"{_INSTALL}:524-529",
    f"{_INSTALL}:226-230",
)

_CODES = {"NORMAL": 559, "WARNING": 554, "ERROR": 553, "ALERT": 557}
_TASK = re.compile(r"(?P<title>.*) \[(?P<severity>[A-Z]+)\] (?P<message>.*)")
_BY_KEY = types.SshAuthenticationMethod.PUBLICKEY
_INSTALLABLE = ("maintenance", "non_operational", "install_failed", "installing_os")


@route(
    "POST",
    "/hosts/{host}/install",
    root="action",
    fields=("host.override_iptables",),
    wants=("activate", "reboot", "ssh.authentication_method"),
)
def install(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    body = call.body
    world = call.world
    assert body.ssh.authentication_method is _BY_KEY  # else root's password, or 400
    if host.status not in _INSTALLABLE and world.does(STATUS):
        raise Refusal(409, f"Cannot install Host {host.name} in the status it has.")
    _begin(world, host, body.activate, body.reboot, call.correlation_id)
    return done()


def _begin(
    world: World,
    host: SimHost,
    activate: bool,
    reboot: bool,
    correlation_id: Optional[str],
) -> None:
    def record(code: int, severity: str, text: str) -> None:
        about = {"correlation_id": correlation_id, "host": host.id}
        world.log.record(code, severity, text, **about)

    def task_done(name: str) -> None:
        match = _TASK.match(name) if world.does(SEVERITY) else None
        code = _CODES.get(match["severity"], 559) if match else 559
        text = f"{match['title']} {match['message']}" if match else name
        severity = match["severity"].lower() if match else "normal"
        record(code, severity, f"Installing Host {host.name}. {text}.")

    def failed(why: str, status: str = "install_failed") -> None:
        host.status = status
        record(505, "error", f"Host {host.name} installation failed. {why}.")
        world.transitions.stop(host.id)

    def start() -> None:
        host.status = "installing"
        record(560, "normal", f"The playbook for host {host.name} has started.")

    def installed() -> None:
        if not host.reachable and world.does(SSH_FAILED):
            failed("Failed to execute Ansible host-deploy")
            return
        post_tasks = world.more.get("post_tasks", lambda host: ())
        names = post_tasks(host)
        error = host.more.get("install_error")
        for task in names[:error]:
            task_done(task)
        if host.more.get("engine_restarts") and world.does(RESTARTED):
            begin_activation(world, host, None)
            return
        if error is not None and not world.does(ERROR_IGNORED):
            failed("The playbook ended with an error")
            return
        failure = host.more.get("install_fails")
        if failure and world.does(FAILED):
            failed(failure)
            return
        record(561, "normal", f"The playbook for host {host.name} has finished.")
        if host.more.get("vdsm_silent") and world.does(SILENT):
            failed("Network error during communication with the host", "non_responsive")
            return
        if reboot and host.more.get("reboot_fails") and world.does(NOT_RESTARTED):
            failed("Please refer to the engine's log")
            return
        host.status = "reboot" if reboot else "installing"
        if reboot:
            host.mounts.clear()
            lose_uncommitted(host)

    def finished() -> None:
        record(504, "normal", f"Host {host.name} installed.")
        host.status = "maintenance"
        if activate:
            begin_activation(world, host, correlation_id)
            host.status = "initializing"

    if world.does(LATER):
        world.transitions.begin(host.id, start, installed, finished)
        return
    start()
    world.transitions.begin(host.id, installed, finished)
