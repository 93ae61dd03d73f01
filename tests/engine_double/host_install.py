# SPDX-License-Identifier: GPL-2.0-or-later
"""Reinstall a host, with the engine's surprising defaults.

``host.more["install_tasks"]`` are the tasks that are shown as events;
``host.more["install_fails"]`` is the message with which the installation fails.
"""

from __future__ import annotations

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

    def installed() -> None:
        for task in host.more.get("install_tasks", ()):
            record(559, "normal", f"Installing Host {host.name}. {task}.")
        failure = host.more.get("install_fails")
        if failure and world.does(FAILED):
            host.status = "install_failed"
            record(505, "error", f"Host {host.name} installation failed. {failure}.")
            world.transitions.stop(host.id)
            return
        record(561, "normal", f"The playbook for host {host.name} has finished.")
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

    host.status = "installing"
    record(560, "normal", f"The playbook for host {host.name} has started.")
    world.transitions.begin(host.id, installed, finished)
