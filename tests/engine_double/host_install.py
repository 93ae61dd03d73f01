# SPDX-License-Identifier: GPL-2.0-or-later
"""Reinstall a host, with the engine's surprising defaults.

What the playbook does to a host: ``host.more["install_tasks"]`` are the names of its
tasks that succeed, or ``world.more["post_tasks"]`` is called with the host and returns
them, as the administrator's post-tasks would change the host and be reported;
``host.more["install_fails"]`` is the message with which a task fails, and
``host.more["install_error"]`` the number of tasks after which the playbook ends with an
error that is no task's (a role that is missing). ``host.more["reboot_fails"]``: it
cannot be restarted. ``host.more["engine_restarts"]``: the engine is restarted when the
tasks are done. ``host.more["vdsm_silent"]``: VDSM does not answer after them.
"""

from __future__ import annotations

import re
from typing import Optional

from engine_double.answers import Answer, Refusal, done
from engine_double.behaviours import behaviour
from engine_double.host_life import ON_REBOOT, begin_activation
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.world import World

_VALIDATOR = "bll/validator/UpdateHostValidator.java"
_REST = "restapi/resource/BackendHostResource.java"
_INSTALL = "bll/hostdeploy/InstallVdsInternalCommand.java"
STATUS = behaviour(
    "HOST-23",
    "A host is reinstalled only while it is Maintenance, NonOperational, "
    "InstallFailed or InstallingOS: 409.",
    f"{_VALIDATOR}:79-86",
)
PASSWORD = behaviour(
    "HOST-24",
    "An installation requires root's password, unless it says that it goes by the "
    "engine's key: 400.",
    f"{_VALIDATOR}:88-94",
    "common/action/VdsOperationActionParameters.java:79",
)
STAYS = behaviour(
    "HOST-25",
    "An installed host stays in maintenance, unless activate is sent.",
    f"{_REST}:157-161",
    f"{_INSTALL}:218-222",
)
REBOOTED = behaviour(
    "HOST-26",
    "An installed host is restarted, unless reboot is sent as false.",
    f"{_REST}:162-165",
    f"{_INSTALL}:203-208",
)
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
_INSTALLABLE = ("maintenance", "non_operational", "install_failed", "installing_os")


@route(
    "POST",
    "/hosts/{host}/install",
    root="action",
    fields=(
        *("activate", "reboot", "deploy_hosted_engine", "undeploy_hosted_engine"),
        *("root_password", "ssh.authentication_method", "host.override_iptables"),
    ),
)
def install(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    body = call.body
    world = call.world
    if host.status not in _INSTALLABLE and world.does(STATUS):
        raise Refusal(409, f"Cannot install Host {host.name} in the status it has.")
    way = body.ssh.authentication_method.value if body.ssh else "password"
    if way == "password" and not body.root_password and world.does(PASSWORD):
        raise Refusal(400, "Cannot install Host with empty password.")
    activate = not world.does(STAYS) if body.activate is None else body.activate
    reboot = world.does(REBOOTED) if body.reboot is None else body.reboot
    _begin(world, host, activate, reboot, call.correlation_id)
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
        post_tasks = world.more.get("post_tasks")
        names = host.more.get("install_tasks", ())
        if post_tasks is not None:
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
            for lose in ON_REBOOT:
                lose(world, host)

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
