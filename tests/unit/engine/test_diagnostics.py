"""The real texts of failures, word for word, and what is made of them.

Each was caused on the real engine (3.274), provider (4.25) and API server (1.36).
"""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.engine.changes import Diagnostic
from provisioner.engine.diagnostics import Failure, classify, hopeless
from provisioner.engine.rules import RULES
from provisioner.errors import PermanentError, TransientError

URN = "urn:pulumi:graph::data-service::data-service:index:DataService$kubernetes:core/v1:Service::graph"
CREATE = f'resource "{URN}" was not successfully created by the Kubernetes API server: '
SCHEMA = "configured Kubernetes cluster is unreachable: unable to load schema information from the API server: "
KUBECONFIG = (
    "configured Kubernetes cluster is unreachable: unable to load Kubernetes client configuration from kubeconfig file."
    " Make sure you have: \n\n \t • set up the provider as per"
    " https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/ \n\n "
)
CONFLICT = (
    "Server-Side Apply field conflict detected. See https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources for troubleshooting help."
    "\n"
    'The resource managed by field manager "pulumi-kubernetes-3e57e064" had an apply conflict: Apply failed with 1'
    ' conflict: conflict with "ops" using apps/v1: .spec.replicas'
)
P, T = PermanentError, TransientError

# What the provider said of one object -> kind, reason, what the message holds.
TOLD = [
    (
        CREATE + 'services "graph" is forbidden: User "low" cannot patch resource "services" in API group "" in the'
        ' namespace "default"',
        P,
        "Forbidden",
        'Service graph: low may not patch services in namespace "default"',
    ),
    (
        'statefulsets.apps "e2" is forbidden: User "low" cannot delete resource "statefulsets" in API group "apps" in'
        ' the namespace "default"',
        P,
        "Forbidden",
        'low may not delete statefulsets in namespace "default"',
    ),
    (
        f'update of resource "{URN}" failed: services "e2" is forbidden: User "low" cannot get resource "services" in'
        ' API group "" in the namespace "default"\nunable to get cluster state: services "e2" is forbidden: User "low"'
        ' cannot get resource "services" in API group "" in the namespace "default"',
        P,
        "Forbidden",
        'low may not get services in namespace "default"',
    ),
    (
        'namespaces is forbidden: User "low" cannot list resource "namespaces" in API group "" at the cluster scope',
        P,
        "Forbidden",
        "low may not list namespaces in the cluster scope",
    ),
    (CREATE + 'namespaces "nope" not found', P, "NamespaceNotFound", "namespace nope does not exist"),
    (
        CREATE + 'services "e6" is forbidden: unable to create new content in namespace going because it is being'
        " terminated",
        P,
        "NamespaceTerminating",
        "namespace going",
    ),
    (
        CREATE + 'services "e5" is forbidden: exceeded quota: q, requested: services=1, used: services=0, limited:'
        " services=0",
        P,
        "QuotaExceeded",
        "quota q is exceeded: asked for services=1, services=0 of services=0 in use",
    ),
    (
        CREATE + "statefulsets.apps \"e3\" is forbidden: ValidatingAdmissionPolicy 'nobig' with binding 'nobig' denied"
        " request: at most 5 replicas",
        P,
        "AdmissionDenied",
        "at most 5 replicas",
    ),
    (
        CREATE + 'Internal error occurred: failed calling webhook "dead.example.com": failed to call webhook: Post'
        ' "https://127.0.0.1:9/x?timeout=2s": dial tcp 127.0.0.1:9: connect: connection refused',
        T,
        "WebhookUnavailable",
        "dead.example.com",
    ),
    (
        CREATE + 'StatefulSet.apps "graph" is invalid: spec: Forbidden: updates to statefulset spec for fields other'
        " than 'replicas', 'ordinals' are forbidden",
        P,
        "Invalid",
        "updates to statefulset spec",
    ),
    (CREATE + CONFLICT, P, "Conflict", ".spec.replicas"),
    (
        SCHEMA + 'Get "https://127.0.0.1:1/openapi/v2?timeout=32s": dial tcp 127.0.0.1:1: connect: connection refused',
        T,
        "ClusterUnreachable",
        "connection refused",
    ),
    (
        SCHEMA + 'Get "https://nowhere.invalid:1/openapi/v2?timeout=32s": dial tcp: lookup nowhere.invalid on'
        " 10.255.255.53:53: no such host",
        T,
        "ClusterUnreachable",
        "no such host",
    ),
    (
        "configured Kubernetes cluster is unreachable. If the cluster was deleted, you can remove this resource from"
        " Pulumi state by rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment variable set to"
        ' "true"',
        T,
        "ClusterUnreachable",
        "the cluster cannot be reached",
    ),
    (
        "failed to read resource state due to unreachable cluster. If the cluster was deleted, you can remove this"
        " resource from Pulumi state by rerunning the operation with the PULUMI_K8S_DELETE_UNREACHABLE environment"
        ' variable set to "true"',
        T,
        "ClusterUnreachable",
        "the cluster cannot be reached",
    ),
    (SCHEMA + "the server has asked for the client to provide credentials", T, "Unauthorized", "credentials"),
    (
        SCHEMA + 'Get "https://127.0.0.1:16443/openapi/v2?timeout=32s": getting credentials: exec: executable'
        " /bin/false failed with exit code 1",
        T,
        "Unauthorized",
        "/bin/false",
    ),
    (
        SCHEMA + 'Get "https://127.0.0.1:16443/openapi/v2?timeout=32s": tls: failed to verify certificate: x509:'
        " certificate signed by unknown authority",
        P,
        "ClusterUntrusted",
        "unknown authority",
    ),
    (
        KUBECONFIG + "invalid configuration: [context was not found for specified context: nope, cluster has no server"
        " defined]",
        P,
        "KubeconfigInvalid",
        "the kubeconfig cannot be used: invalid configuration: [context was not found for specified context: nope",
    ),
    (
        KUBECONFIG + 'error loading config file "/x/kc": yaml: line 1: did not find expected node content',
        P,
        "KubeconfigInvalid",
        'the kubeconfig cannot be used: error loading config file "/x/kc"',
    ),
    (
        "no resource plugin 'pulumi-resource-kubernetes' found in the workspace at version v4.25.0",
        P,
        "PluginMissing",
        "pulumi-resource-kubernetes v4.25.0 is not installed",
    ),
    (
        "Detected that /home/u/plugins/resource-kubernetes-v4.25.0/pulumi-resource-kubernetes exited prematurely."
        " This is *always* a bug in the provider. Please report the issue to the provider author as appropriate.\n\n"
        "To assist with debugging we have dumped the STDOUT and STDERR streams of the plugin:\n",
        T,
        "ProviderEnded",
        "provider ended in the middle of the operation",
    ),
]

# What the CLI printed before its engine began -> kind, reason, what the message holds.
PRINTED = [
    (
        "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) to end or delete the"
        " lock file with `pulumi cancel`.\n  file:///s/.pulumi/locks/organization/data-service/a/u.json: created by"
        " root@elsewhere (pid 1) at 2020-01-01T00:00:00Z\n",
        T,
        "StackLocked",
        "root@elsewhere",
    ),
    ("error: stack 'organization/data-service/a' already exists\n", P, "StackExists", "already exists"),
    (
        "error: \n================================================================================\n"
        "Legacy DIY state is deprecated, please upgrade your state to project mode using:\n'pulumi state upgrade'\n\n"
        "It is due to be removed in a future release before the end of this year (2026).\n",
        P,
        "StateLayoutOld",
        "kept no projects apart",
    ),
    ("error: no stack named 'a' found\n", P, "StackNotFound", "no stack named"),
    (
        "error: getting stack configuration: get stack secrets manager: failed to decrypt: incorrect passphrase, please"
        " set PULUMI_CONFIG_PASSPHRASE to the correct passphrase or set PULUMI_CONFIG_PASSPHRASE_FILE to a file"
        " containing the passphrase\n",
        P,
        "PassphraseWrong",
        "the passphrase is not the one",
    ),
    (
        'error: could not create stack: blob (key ".pulumi/locks/organization/data-service/b/6.json") (code=Unknown):'
        " mkdir /s/.pulumi/locks/organization/data-service/b: read-only file system\n",
        P,
        "StatePermissionDenied",
        "/s/.pulumi/locks/organization/data-service/b: read-only file system",
    ),
]


@pytest.mark.parametrize(("text", "kind", "reason", "holds"), TOLD)
def test_what_was_told(text: str, kind: type[Exception], reason: str, holds: str) -> None:
    told = (Diagnostic("error", text, URN), Diagnostic("error", "update failed"))
    error = classify(Failure("graph", "up", 255, told))
    assert type(error) is kind
    assert error.reason == reason
    assert holds in error.message
    assert error.message.startswith("up of stack graph failed: ")
    assert error.hint
    assert URN not in error.message
    assert "{" not in error.hint


@pytest.mark.parametrize(("text", "kind", "reason", "holds"), PRINTED)
def test_what_was_printed(text: str, kind: type[Exception], reason: str, holds: str) -> None:
    error = classify(Failure("graph", "up", 255, (), f"Updating (graph):\n{text}"))
    assert type(error) is kind
    assert (error.reason, holds in error.message) == (reason, True)
    assert "\n" not in error.message


def test_a_right_that_is_missing_names_what_to_grant() -> None:
    error = classify(Failure("graph", "up", 255, (Diagnostic("error", TOLD[1][0], URN),)))
    assert 'verb delete on statefulsets of API group "apps"' in error.hint


def test_of_several_causes_the_permanent_one_counts() -> None:
    causes = (Diagnostic("error", TOLD[11][0], URN), Diagnostic("error", TOLD[0][0], URN))
    assert classify(Failure("graph", "up", 255, causes)).reason == "Forbidden"
    assert classify(Failure("graph", "up", 255, causes[:1])).reason == "ClusterUnreachable"


def test_warnings_are_no_causes() -> None:
    causes = (Diagnostic("warning", TOLD[0][0], URN), Diagnostic("error", "something new", URN))
    error = classify(Failure("graph", "up", 255, causes))
    assert (error.reason, error.message) == ("EngineFailed", "up of stack graph failed: Service graph: something new")


def test_a_signal() -> None:
    error = classify(Failure("graph", "up", -9))
    assert isinstance(error, TransientError)
    assert error.reason == "EngineKilled"


def test_nothing_was_said() -> None:
    error = classify(Failure("graph", "up", 255))
    assert error.message == "up of stack graph failed with exit code 255: nothing was said"


@given(st.text(alphabet=string.printable), st.text(alphabet=string.printable), st.integers(-64, 255))
def test_any_text_gives_one_bounded_line(told: str, printed: str, code: int) -> None:
    error = classify(Failure("graph", "up", code or 1, (Diagnostic("error", told * 100, URN),), f"error: {printed}"))
    assert error.reason
    assert len(error.message) < 1400


def test_each_rule_has_its_words() -> None:
    for rule in RULES:
        assert rule.reason.isalpha()
        assert rule.hint
        names = {name for _, name, _, _ in string.Formatter().parse(rule.hint + rule.say) if name}
        assert names <= set(rule.pattern.groupindex)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('Retry #2; creation failed: namespaces "nope" not found\n', 'namespaces "nope" not found'),
        # Whoever makes the namespace at the same moment has three seconds.
        ('Retry #1; creation failed: namespaces "nope" not found\n', None),
        ("Retry #5; creation failed: etcdserver: request timed out", None),
        ("Retry #5; creation failed: something new", None),
        ('namespaces "nope" not found', None),
    ],
)
def test_what_is_given_up(message: str, expected: str | None) -> None:
    assert hopeless(message) == expected
