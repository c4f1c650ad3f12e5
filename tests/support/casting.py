"""Services in no time: the objects are created by hand, the record is cast from one that the engine really made.

An engine operation keeps both cores busy for seconds, and a test of the janitor needs a dozen services that were
applied at some time in the past. Nothing of what it looks at is pretended: the objects are those of the same
manifests, and the record is the engine's own with other names in it, which the engine can destroy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from provisioner.identity import ANNOTATION_BACKEND, Identity, Origin
from provisioner.resources.component import COMPONENT_TYPE
from provisioner.resources.manifests import service_manifest, stateful_set_manifest
from provisioner.spec import DataServiceSpec


@dataclass(frozen=True)
class Mould:
    """A service that the engine made.

    Attributes:
        identity: Its names, none of which stands for anything else in the record.
        uids: Of its objects, by kind.
        record: Its checkpoint.
        meta: What the backend says of its own layout.
    """

    identity: Identity
    uids: Mapping[str, str]
    record: str
    meta: bytes

    def cast(self, identity: Identity, spec: DataServiceSpec, origin: Origin, uids: Mapping[str, str]) -> str:
        """The checkpoint of another service, with objects of its own."""
        names = {getattr(self.identity, name): getattr(identity, name) for name in ("stack", "namespace", "service")}
        text = self.record
        # The name of the stack begins with that of the service.
        for old, new in (names | {self.uids[kind]: uids[kind] for kind in self.uids}).items():
            text = text.replace(old, new)
        document = json.loads(text)
        for resource in document["checkpoint"]["latest"]["resources"]:
            if resource["type"] == COMPONENT_TYPE:
                resource["inputs"] = {"identity": asdict(identity), "spec": spec.document(), "cluster": origin.cluster}
        return json.dumps(document)


def manifests(identity: Identity, spec: DataServiceSpec, origin: Origin) -> dict[str, dict[str, Any]]:
    """The objects of a service, by kind."""
    made = {"Service": service_manifest(identity, spec), "StatefulSet": stateful_set_manifest(identity, spec)}
    for manifest in made.values():
        manifest["metadata"]["annotations"][ANNOTATION_BACKEND] = origin.backend
    return made
