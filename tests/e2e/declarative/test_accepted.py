"""What is accepted at our door is accepted by the API server; what is not changes nothing."""

import base64
import json
from typing import Any

from documents import broken_specs, specs
from hypothesis import HealthCheck, Phase, given, settings
from pydantic import SecretStr

from provisioner.identity import for_name
from provisioner.resources.manifests import (
    disruption_budget_manifest,
    secret_manifest,
    service_manifest,
    stateful_set_manifest,
)
from provisioner.sealing import Sealer
from provisioner.spec import parse_spec

# The namespace is the same for all examples: nothing is made in it.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
# A shrunk example would cost hundreds of calls; the first one says enough.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def test_any_accepted_specification_is_accepted_by_the_api_server(kube):
    sealer = Sealer(lambda: SecretStr("a passphrase"))

    @settings(max_examples=80, deadline=None, suppress_health_check=SHARED, phases=PHASES)
    @given(specs())
    def accepted(document: dict[str, Any]) -> None:
        identity = for_name("p", "d", namespace=kube.namespace, name="graph")
        spec = sealer.sealed(parse_spec(document), identity.stack)
        secret = secret_manifest(identity, spec)
        if secret is not None:
            opened = sealer.opened(spec, identity.stack)
            secret["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in opened.items()}
        made = {
            "Service": service_manifest(identity, spec),
            "Secret": secret,
            "StatefulSet": stateful_set_manifest(identity, spec),
            "PodDisruptionBudget": disruption_budget_manifest(identity, spec),
        }
        for kind, manifest in made.items():
            if manifest is not None:
                # Strict: a field that the API server does not know is an error, not left out.
                kube.call("POST", f"{kube.path(kind)}?dryRun=All&fieldValidation=Strict", manifest)

    accepted()
    assert kube.names("Service", "Secret", "StatefulSet", "PodDisruptionBudget") == []


def test_any_rejected_specification_changes_nothing(run, kube, backend):
    @settings(max_examples=25, deadline=None, suppress_health_check=SHARED, phases=PHASES)
    @given(broken_specs())
    def rejected(document: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "data-service/v1", "metadata": {"name": "graph"}, "spec": document})
        for verb in ("apply", "preview"):
            refused = run(verb, "-f", "-", stdin=text)
            assert (refused.code, refused.out) == (2, ""), refused.err
            assert refused.err.startswith("error: stdin is not valid\n  spec")

    rejected()
    assert kube.names("Service", "Secret", "StatefulSet", "PodDisruptionBudget", "Pod") == []
    assert not backend.exists()
