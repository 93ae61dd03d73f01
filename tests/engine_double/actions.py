# SPDX-License-Identifier: GPL-2.0-or-later
"""Map each changing request to the engine's action, and handle the job that a request
names with the query parameter JobId.
"""

from __future__ import annotations

from typing import Optional

from engine_double import job_life
from engine_double.answers import Answer, Missing, Refusal, done
from engine_double.behaviours import behaviour
from engine_double.routing import Call, Route
from engine_double.world import World, new_id

_TYPES = "common/action/ActionType.java"
REFUSED = behaviour(
    "JOB-13",
    "JobId is refused with 400 for actions that the engine does not monitor.",
    "bll/Backend.java:421-426",
    f"{_TYPES}:97",
    f"{_TYPES}:271-281",
    f"{_TYPES}:498-502",
    "restapi/resource/BackendResource.java:268-277",
)
ENDED = behaviour(
    "JOB-14",
    "A monitored action that is given a JobId runs as that job, and ends it with all "
    "its started steps when it has been carried out, or has failed.",
    "bll/job/ExecutionHandler.java:236-246",
    "bll/job/ExecutionHandler.java:483-522",
    "bll/CommandBase.java:1386",
    "bll/CommandBase.java:1414-1416",
)
NOT_AT_VALIDATION = behaviour(
    "JOB-15",
    "An action that is refused beforehand leaves the job as it is.",
    "bll/CommandBase.java:407-427",
)
CALLBACK_LATER = behaviour(
    "JOB-16",
    "Actions with a callback end the job when the callback has ended: deactivating a "
    "domain, and adding, changing and removing a network.",
    "bll/CommandBase.java:1760-1762",
    "bll/storage/domain/DeactivateStorageDomainWithOvfUpdateCommand.java:65-68",
    "bll/network/dc/AddNetworkCommand.java:322-324",
    "bll/network/dc/UpdateNetworkCommand.java:608-610",
    "bll/network/dc/RemoveNetworkCommand.java:241-243",
)
UNKNOWN_JOB = behaviour(
    "JOB-17",
    "A JobId of a job that there is not is ignored by monitored actions.",
    "bll/job/ExecutionHandler.java:212-233",
)
NO_HEADER = behaviour(
    "JOB-18",
    "JobId counts as a query word only; a header of that name is not read.",
    "restapi/util/ParametersHelper.java:41-46",
    "restapi/util/ParametersHelper.java:105-114",
)
JOB_NAMED = behaviour(
    "REST-34",
    "The answer to an action or a removal that the engine monitors names its job.",
    "restapi/resource/BackendResource.java:178-206",
    "restapi/resource/AbstractBackendActionableResource.java:77-96",
    "bll/Backend.java:452",
)
NOT_THERE = behaviour(
    "REST-36",
    "Actions of hosts and domains that there are not: 400 with a fault, and 500 for "
    "the deactivation of a domain; 404 is for reading, changing and removing, and for "
    "setting up networks.",
    "restapi/resource/AbstractBackendActionableResource.java:77-96",
    "bll/MaintenanceNumberOfVdssCommand.java:276-281",
    "bll/ActivateVdsCommand.java:127-130",
)

# Beside each route of the double that changes something; one that adds a domain begins
# with AddStorageServerConnection where it brings its row.
ACTIONS = {
    ("POST", "/hosts/{host}/deactivate"): "MaintenanceNumberOfVdss",
    ("POST", "/hosts/{host}/activate"): "ActivateVds",
    ("POST", "/hosts/{host}/refresh"): "RefreshHost",
    ("POST", "/hosts/{host}/install"): "UpdateVds",
    ("POST", "/hosts/{host}/setupnetworks"): "HostSetupNetworks",
    ("POST", "/hosts/{host}/syncallnetworks"): "SyncAllHostNetworks",
    ("POST", "/hosts/{host}/commitnetconfig"): "CommitNetworkChanges",
    ("DELETE", "/hosts/{host}/unmanagednetworks/{network}"): "HostSetupNetworks",
    ("POST", "/storageconnections"): "AddStorageServerConnection",
    ("PUT", "/storageconnections/{connection}"): "UpdateStorageServerConnection",
    ("DELETE", "/storageconnections/{connection}"): "RemoveStorageServerConnection",
    ("POST", "/storagedomains"): "AddNFSStorageDomain",
    ("DELETE", "/storagedomains/{domain}"): "RemoveStorageDomain",
    ("POST", "/datacenters/{dc}/storagedomains"): "AttachStorageDomainToPool",
    (
        "DELETE",
        "/datacenters/{dc}/storagedomains/{domain}",
    ): "DetachStorageDomainFromPool",
    (
        "POST",
        "/datacenters/{dc}/storagedomains/{domain}/activate",
    ): "ActivateStorageDomain",
    (
        "POST",
        "/datacenters/{dc}/storagedomains/{domain}/deactivate",
    ): "DeactivateStorageDomainWithOvfUpdate",
    ("POST", "/networks"): "AddNetwork",
    ("POST", "/datacenters/{dc}/networks"): "AddNetwork",
    ("PUT", "/networks/{network}"): "UpdateNetwork",
    ("DELETE", "/networks/{network}"): "RemoveNetwork",
    ("POST", "/clusters/{cluster}/networks"): "AttachNetworkToCluster",
    ("PUT", "/clusters/{cluster}/networks/{network}"): "UpdateNetworkOnCluster",
    ("DELETE", "/clusters/{cluster}/networks/{network}"): "DetachNetworkToCluster",
    ("PUT", "/clusters/{cluster}"): "UpdateCluster",
    ("POST", "/clusters/{cluster}/upgrade"): "StartClusterUpgrade",
    ("POST", "/clusters/{cluster}/enabledfeatures"): "UpdateCluster",
    ("DELETE", "/clusters/{cluster}/enabledfeatures/{feature}"): "UpdateCluster",
    ("POST", "/events"): "AddExternalEvent",
    ("POST", "/jobs"): "AddExternalJob",
    ("POST", "/jobs/{job}/end"): "EndExternalJob",
    ("POST", "/jobs/{job}/clear"): "ClearExternalJob",
    ("POST", "/jobs/{job}/steps"): "AddExternalStep",
    ("POST", "/jobs/{job}/steps/{step}/end"): "EndExternalStep",
}
# ActionType.java: isActionMonitored is false.
NOT_MONITORED = {
    "AddExternalJob",
    "AddExternalStep",
    "AttachNetworkToCluster",
    "ClearExternalJob",
    "DetachNetworkToCluster",
    "EndExternalJob",
    "EndExternalStep",
    "MaintenanceNumberOfVdss",
    "RefreshHost",
    "StartClusterUpgrade",
    "UpdateCluster",
    "UpdateNetworkOnCluster",
    "UpdateVds",
}
# Backend.isActionExternal: they take a JobId although they are not monitored.
OF_JOBS = {"EndExternalJob", "EndExternalStep", "ClearExternalJob"}
WITH_CALLBACK = {
    "AddNetwork",
    "DeactivateStorageDomainWithOvfUpdate",
    "RemoveNetwork",
    "UpdateNetwork",
}


# The message of each about a missing object; the others answer 404.
_OF_NOTHING: dict[str, tuple[int, tuple[str, ...]]] = {
    "ActivateVds": (400, ("Cannot activate Host. Invalid Host Id.",)),
    "MaintenanceNumberOfVdss": (400, ("Cannot maintenance Host. Invalid Host Id.",)),
    "RefreshHost": (400, ()),
    "CommitNetworkChanges": (400, ("Host not found.",)),
    "ActivateStorageDomain": (400, ("The Storage Domain does not exist.",)),
    "DeactivateStorageDomainWithOvfUpdate": (500, ("NullPointerException",)),
}


class Failure(Refusal):
    """The engine began and failed; a Refusal comes before any change."""


def job_asked_for(
    world: World, call_query: Optional[str], header: Optional[str]
) -> str:
    """Return the job that a request belongs to, "" for none."""
    return call_query or ("" if world.does(NO_HEADER) else header or "")


def action_of(found: Route) -> str:
    return ACTIONS.get((found.method, found.path), "")


def check_job(call: Call, found: Route) -> None:
    """Raise Refusal if the request cannot name a job."""
    world, action = call.world, action_of(found)
    if not call.job_id or action not in NOT_MONITORED or action in OF_JOBS:
        return
    if world.does(REFUSED):
        raise Refusal(400, "Cannot ${action} ${type}. Non monitored command.")


def carried_out(call: Call, found: Route) -> Answer:
    """Return the answer to an action or a removal that was carried out. Its job is not
    among the jobs: only tests add the engine's own.
    """
    action = action_of(found)
    if not action or action in NOT_MONITORED or not call.world.does(JOB_NAMED):
        return done()
    known_job = call.job_id in job_life.jobs_of(call.world)
    return done(call.job_id if known_job and call.job_id else new_id())


def check_there(call: Call, found: Route, missing: Missing) -> None:
    """Raise Refusal if the engine answers so to an action on a missing object."""
    said = _OF_NOTHING.get(action_of(found))
    if said is not None and call.world.does(NOT_THERE):
        raise Refusal(said[0], *said[1]) from missing


def note_ended(call: Call, found: Route, refused: Optional[Refusal]) -> None:
    """End the job that a request named, as the engine does."""
    world, action = call.world, action_of(found)
    if not call.job_id or not action or action in NOT_MONITORED:
        return
    before = refused is not None and not isinstance(refused, Failure)
    if not world.does(ENDED) or (before and world.does(NOT_AT_VALIDATION)):
        return
    job = job_life.jobs_of(world).get(call.job_id)
    if job is None:
        if not world.does(UNKNOWN_JOB):
            raise Refusal(400, "Job not found.")
        return
    if refused is None:
        job_life.begin_step(world, job, "executing", "Executing", external=False)
    if refused is None and action in WITH_CALLBACK and world.does(CALLBACK_LATER):
        _waiting(world).append((job.id, call.ids.get("domain", "")))
    else:
        job_life.end(world, job, succeeded=refused is None)


def end_callbacks(world: World) -> None:
    """End the jobs whose action has finished since the last request."""
    left = []
    for name, about in _waiting(world):
        if about and world.transitions.under_way(about):
            left.append((name, about))
        elif name in job_life.jobs_of(world):
            job_life.end(world, job_life.jobs_of(world)[name], succeeded=True)
    world.more["callbacks"] = left


def _waiting(world: World) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = world.more.setdefault("callbacks", [])
    return found
