"""Every reason code there is: how long it may last, whether waiting may help, and what to do.

The one table for all of it. Its order is the order of precedence: what names
the cause most exactly, and is least likely to pass, stands first.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from provisioner.errors import UsageError
from provisioner.spec import parse_duration


@dataclass(frozen=True, slots=True)
class Rule:
    """What is known of a reason beforehand.

    Attributes:
        grace: Seconds after which it is final; None: never by itself, only
            the service's start deadline ends the waiting.
        waiting_helps: Whether it may pass without anybody doing something.
        hint: The next step.
    """

    grace: float | None
    waiting_helps: bool
    hint: str


UNREACHABLE = "ClusterUnreachable"

RULES: dict[str, Rule] = {
    UNREACHABLE: Rule(
        None, True, "is the API server up, and may this program reach it? Running replicas are not affected"
    ),
    "NamespaceTerminating": Rule(0, False, "create the service in another namespace, or again once this one is back"),
    "ImageInvalid": Rule(0, False, "correct `image`: [registry/]name[:tag][@digest]"),
    "ImageNotFound": Rule(30, False, "check name and tag for typing errors, and that the image was pushed"),
    "ImageUnauthorized": Rule(
        30,
        False,
        "name a Secret with the registry's credentials in `imagePullSecrets`; some registries answer like "
        "this for an image that does not exist",
    ),
    "ImageNeverPulled": Rule(30, False, "load the image on every node, or set `imagePullPolicy: IfNotPresent`"),
    "RegistryUnreachable": Rule(60, True, "check the registry's name and port, and that the nodes may reach it"),
    "ImagePullFailed": Rule(60, True, "try `crictl pull` on the node; its answer is in the detail"),
    "ConfigMissing": Rule(60, True, "create the Secret or ConfigMap named, or correct the name and key in `env`"),
    "ContainerCreateFailed": Rule(60, True, "the container runtime's answer is in the detail"),
    "ContainerStartFailed": Rule(30, False, "check `command`, `args` and the image's entry point"),
    "OutOfMemory": Rule(60, False, "raise `resources.limits.memory`, or make shards smaller with more `replicas`"),
    "LivenessProbeFailed": Rule(
        60, False, "is the service slower to start than `livenessProbe` allows? Add a `startupProbe`"
    ),
    "StartupProbeFailed": Rule(60, False, "give `startupProbe` more time: failureThreshold x periodSeconds"),
    "InitContainerFailed": Rule(60, False, "read the init container's log"),
    "CrashLoop": Rule(60, False, "read the log of the previous run; run the image by hand with the same arguments"),
    "ClaimLost": Rule(0, False, "delete the claim to start with an empty volume, or restore its volume"),
    "StorageClassMissing": Rule(60, False, "name one of `kubectl get storageclass`, or mark one as the default"),
    "ServiceAccountMissing": Rule(60, False, "create the service account, or correct `serviceAccount`"),
    "AdmissionDenied": Rule(60, False, "change the specification so that the cluster's policies allow it"),
    "PodCreateFailed": Rule(60, False, "the API server's answer is in the detail"),
    "PodRejected": Rule(120, True, "the node refused it although the scheduler had chosen it; look at the node"),
    "PodFailed": Rule(120, True, "the StatefulSet makes the pod anew; read its log"),
    "SandboxFailed": Rule(120, True, "look at the container runtime and the network plugin of that node"),
    "MountFailed": Rule(120, True, "check that what the volumes name exists, and the storage driver of that node"),
    "AdmissionUnavailable": Rule(120, True, "bring the webhook named back, or ask its owner for `failurePolicy`"),
    "QuotaExceeded": Rule(300, True, "remove what is not needed, ask for fewer replicas, or for more quota"),
    "ClaimNotBound": Rule(300, True, "look at the provisioner of the storage class, and at its quota"),
    "Unschedulable": Rule(300, True, "ask for less, correct `nodeSelector` and `tolerations`, or add nodes"),
    "NodeLost": Rule(300, True, "look at the node; delete its Node object if it will not return"),
    "Evicted": Rule(300, True, "set `resources.requests` to what a replica really uses"),
    "SchedulingGated": Rule(None, True, "the controller that set the gate has to remove it"),
    "ProbeFailing": Rule(None, True, "it may still be starting; its log tells how far it is"),
    "ReadinessProbeFailed": Rule(None, True, "it may still be loading; its log tells how far it is"),
    "Terminating": Rule(None, True, "wait; a finalizer or a lost node can hold it for long"),
}
GRACES: dict[str, float] = {reason: rule.grace for reason, rule in RULES.items() if rule.grace is not None}
_NEVER = "never"


def graces(text: str) -> dict[str, float]:
    """The graces of all reasons, some of them set otherwise.

    Args:
        text: `REASON=DURATION` or `REASON=never`, comma-separated.

    Returns:
        Seconds by reason; a reason that is absent is never final by itself.

    Raises:
        UsageError: A reason is not known, or a duration is none; all are named.

    Example:
        >>> graces("Unschedulable=20m, Evicted=never")["Unschedulable"]
        1200
    """
    found, problems = dict(GRACES), []
    for item in filter(None, (part.strip() for part in text.split(","))):
        reason, _, given = (part.strip() for part in item.partition("="))
        if reason not in RULES:
            close = difflib.get_close_matches(reason, RULES, n=1)
            problems.append(
                f"{item!r}: there is no reason {reason!r}" + (f", did you mean {close[0]}?" if close else "")
            )
        elif given == _NEVER:
            found.pop(reason, None)
        else:
            try:
                found[reason] = 0.0 if given in ("0", "0s") else float(parse_duration(given))
            except ValueError as error:
                problems.append(f"{item!r}: {error}, or 0s, or {_NEVER}")
    if problems:
        raise UsageError(
            f"the graces are not valid: {'; '.join(problems)}",
            reason="GracesInvalid",
            hint="correct PROVISIONER_GRACES, for example Unschedulable=20m,ImageNotFound=2m,Evicted=never; "
            f"the reasons are {', '.join(RULES)}",
        )
    return found
