"""Images that cannot be had: missing, refused, not authorised, or not a name at all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.cluster.findings.finding import Facts, Finding, clean, named, part, tail
from provisioner.cluster.objects import Container, Pod

# Waiting reasons of kubelet (pkg/kubelet/images/types.go) and of the CRI (ErrRegistryUnavailable, ...).
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed"})
_UNAUTHORIZED = re.compile(
    r"\b40[13]\b|unauthori[sz]ed|authentication required|authorization failed|access denied|access forbidden"
    r"|insufficient_scope|no basic auth|requested access to the resource is denied",
    re.IGNORECASE,
)
_MISSING = re.compile(r"not found|manifest unknown|name unknown|\b404\b|no match for platform", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"connection refused|no such host|timeout|deadline exceeded|network is unreachable|no route to host"
    r"|connection reset|x509|tls:|http: server gave|\bEOF\b|too ?many ?requests|\b429\b|\b50[0234]\b"
    r"|server misbehaving",
    re.IGNORECASE,
)
_EVENTS = ("Failed", "BackOff", "InspectFailed", "ErrImageNeverPull")


def _said(facts: Facts, pod: Pod, container: Container) -> str:
    """What the runtime said about the pull; kubelet repeats it while it waits, older ones only in the event."""
    if container.waiting_reason == "ErrImagePull" or ": Err" in container.waiting_message:
        return container.waiting_message
    quoted = f'"{container.image}"'
    for event in reversed(facts.events(pod, "Failed")):
        if quoted in event.message and "pull" in event.message:
            return event.message
    return container.waiting_message


def _classify(said: str, image: str) -> tuple[str, str]:
    """Reason code and sentence of a failed pull."""
    # The name itself may hold anything, such as a tag of 404.
    repository = image.rpartition("/")[2].partition(":")[0]
    text = said.replace(image, "").replace(repository, "") if repository else said.replace(image, "")
    if _UNAUTHORIZED.search(text):
        return "ImageUnauthorized", f"may not pull image {image!r}: the registry refuses our credentials"
    if _UNREACHABLE.search(text):
        return "RegistryUnreachable", f"cannot pull image {image!r}: its registry cannot be reached ({tail(said)})"
    if _MISSING.search(text):
        return "ImageNotFound", f"cannot pull image {image!r}: the registry has no such image"
    return "ImagePullFailed", f"cannot pull image {image!r}: {tail(said) or 'no reason given'}"


def find(facts: Facts, pod: Pod, container: Container) -> Iterator[Finding]:
    """Why the image of a container is not there.

    Args:
        facts: What is known.
        pod: The pod.
        container: One of its containers.
    """
    image, waiting = container.image, container.waiting_reason
    if waiting in ("InvalidImageName", "InvalidImageID"):
        reason, sentence = "ImageInvalid", f"cannot use {image!r}: it is not an image reference"
        said = container.waiting_message
    elif waiting == "ErrImageNeverPull":
        reason = "ImageNeverPulled"
        sentence = f"cannot use image {image!r}: it is not on node {pod.node} and its pull policy is Never"
        said = container.waiting_message
    elif waiting == "ImageInspectError":
        reason, sentence = "ImagePullFailed", f"cannot use image {image!r}: the node cannot inspect it"
        said = container.waiting_message
    elif waiting in _PULLING:
        said = _said(facts, pod, container)
        reason, sentence = _classify(said, image)
    else:
        return
    yield Finding(
        reason,
        subject=named(pod),
        summary=f"{part(container)} of {named(pod)} {sentence}",
        detail=clean(said),
        since=facts.first_seen(pod, _EVENTS),
    )
