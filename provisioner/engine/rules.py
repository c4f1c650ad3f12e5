"""The failures that are known by their texts: one rule each, the first that fits counts.

A rule says whether waiting may help, gives the reason code, and where the text
is the engine's jargon says the same in words a user knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One kind of failure.

    Attributes:
        reason: Stable code.
        pattern: Found in the text.
        hint: The next step; may name the pattern's groups in braces.
        transient: Whether the same request may succeed later.
        say: The sentence instead of the text; may name the pattern's groups.
    """

    reason: str
    pattern: re.Pattern[str]
    hint: str
    transient: bool = False
    say: str = ""

    def advice(self, match: re.Match[str]) -> str:
        """The hint for one text.

        Args:
            match: Of the pattern in it.
        """
        return self.hint.format(**{name: value or "" for name, value in match.groupdict().items()})


def _permanent(reason: str, pattern: str, hint: str, say: str = "") -> Rule:
    return Rule(reason, re.compile(pattern, re.DOTALL), hint, False, say)


def _transient(reason: str, pattern: str, hint: str, say: str = "") -> Rule:
    return Rule(reason, re.compile(pattern, re.DOTALL), hint, True, say)


_ENGINE = (
    _transient(
        "StackLocked",
        r"the stack is currently locked by|\[409\] Conflict: Another update is currently in progress",
        "wait for the other operation to end",
    ),
    _permanent("StackExists", r"stack '?\S+'? already exists", "use the stack that is there"),
    _permanent("StackNotFound", r"no stack named '?[^']*'? found", "look at the names of the stacks"),
    _permanent(
        "StateLayoutOld",
        r"Legacy DIY state is deprecated",
        "run `pulumi state upgrade` on it, or name another backend with PROVISIONER_BACKEND",
        "the backend is laid out as by the engine's first versions, which kept no projects apart",
    ),
    _permanent(
        "PassphraseWrong",
        r"incorrect passphrase|passphrase must be set|unable to find either `?PULUMI_CONFIG_PASSPHRASE",
        "give the passphrase with which the stack was created (PROVISIONER_PASSPHRASE or PROVISIONER_PASSPHRASE_FILE)",
        "the passphrase is not the one with which the stack's secrets were encrypted",
    ),
    _permanent(
        "PluginMissing",
        r"no (?P<kind>\w+) plugin '(?P<plugin>[^']+)'(?: found)? in the workspace(?: at version (?P<version>v?[\d.]+))?"
        r"|[Cc]ould not find (?P<other>\S*plugin\S*)",
        "run `provisioner toolchain install`",
        "the engine's plugin {plugin}{other} {version} is not installed",
    ),
    _transient(
        "DiskFull",
        r"no space left on device|disk quota exceeded",
        "make room where the state and temporary files are kept",
    ),
    _transient(
        "ProviderEnded",
        r"Detected that (?P<path>\S+) exited prematurely|error reading from server: EOF|transport is closing",
        "it is started again with the next attempt; if it ends again and again, does it have enough memory?",
        "the engine's Kubernetes provider ended in the middle of the operation",
    ),
    _permanent(
        "StatePermissionDenied",
        r"(?:open|mkdir|rename|remove|unlink|stat|lstat|createtemp) (?P<path>\S+): "
        r"(?P<what>permission denied|read-only file system)",
        "give the server's account the right to write there",
        "{path}: {what}",
    ),
    _permanent(
        "StateUnreadable",
        r"snapshot integrity failure|failed to load checkpoint|unexpected end of JSON input"
        r"|invalid character .* looking",
        "restore the checkpoint from a backup, or forget the stack and let its objects be found by their labels",
    ),
    _transient(
        "ProcessLimit",
        r"failed to create new OS thread|resource temporarily unavailable|too many open files",
        "raise the limit of processes or files, or lower PROVISIONER_WORKERS",
    ),
)

_ADMISSION = (
    _permanent(
        "NamespaceTerminating",
        r"because it is being terminated",
        "wait until the namespace is gone and make it again, or use another one",
    ),
    _permanent(
        "QuotaExceeded",
        r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>[^\n]+)",
        "ask for less, remove what is not needed, or raise the quota",
        "quota {quota} is exceeded: asked for {asked}, {used} of {limit} in use",
    ),
    _permanent(
        "AdmissionDenied",
        r"admission webhook \S+ denied the request|ValidatingAdmissionPolicy \S+ with binding \S+ denied request"
        r"|violates PodSecurity|denied by policy",
        "change what the policy objects to, or ask who runs it",
    ),
    _transient(
        "WebhookUnavailable",
        r"failed calling webhook (?P<webhook>\S+?):",
        "look at the webhook's own service",
    ),
    _permanent(
        "Forbidden",
        r"(?:forbidden: )?User \"(?P<user>[^\"]*)\" cannot (?P<verb>\w+) resource \"(?P<resource>[^\"]+)\""
        r" in API group \"(?P<group>[^\"]*)\""
        r"(?: in the (?P<namespace>namespace \"[^\"]+\")| at (?P<scope>the cluster scope))",
        'grant the verb {verb} on {resource} of API group "{group}"; `kubectl auth can-i` shows what is allowed',
        "{user} may not {verb} {resource} in {namespace}{scope}",
    ),
    _permanent("Forbidden", r"is forbidden: |Forbidden\b(?!:)", "ask who runs the cluster for the right to do this"),
)

_OBJECTS = (
    _permanent(
        "NamespaceNotFound",
        r"namespaces \"(?P<namespace>[^\"]+)\" not found",
        "make the namespace, or name another one",
        "namespace {namespace} does not exist",
    ),
    _transient(
        "ObjectTerminating", r"object is being deleted", "wait until the old object is gone; the operation is repeated"
    ),
    _transient(
        "Conflict",
        r"the object has been modified; please apply your changes to the latest version",
        "somebody changed the object at the same moment; the operation is repeated",
    ),
    _permanent(
        "Conflict",
        r"Apply failed with \d+ conflicts?|field conflict detected|conflicts? with \"[^\"]+\"",
        "somebody else manages these fields of the object: undo that, or give the service another name",
    ),
    _permanent(
        "AlreadyExists", r"already exists", "give the service another name, or remove the object if nobody needs it"
    ),
    _permanent(
        "Invalid",
        r"is invalid: |Invalid value: |unknown field|is immutable|no matches for kind"
        r"|cannot be handled as a|strict decoding error",
        "change the field named",
    ),
)

_CONNECTION = (
    _permanent(
        "KubeconfigInvalid",
        r"unable to load Kubernetes client configuration from kubeconfig file\."
        r".*/installation-configuration/\s*(?P<why>.+)",
        "check PROVISIONER_KUBECONFIG and PROVISIONER_CONTEXT",
        "the kubeconfig cannot be used: {why}",
    ),
    _permanent(
        "KubeconfigInvalid",
        r"context \"?[^\"\n]*\"? does not exist|context was not found|invalid configuration"
        r"|no configuration has been provided",
        "check PROVISIONER_KUBECONFIG and PROVISIONER_CONTEXT",
    ),
    _transient(
        "Unauthorized",
        r"has asked for the client to provide credentials|\bUnauthorized\b|getting credentials: ",
        "renew the credentials in the kubeconfig",
    ),
    _permanent(
        "ClusterUntrusted",
        r"x509: |tls: failed to verify certificate",
        "check the certificate authority in the kubeconfig",
    ),
    _transient(
        "TooManyRequests",
        r"too many requests|rate limiter|client rate limiter Wait",
        "the API server is overloaded; the operation is repeated",
    ),
    _transient(
        "ServerTimeout",
        r"the server was unable to return a response in the time allotted|the server is currently unable to handle"
        r"|request did not complete within|etcdserver: |Internal error occurred|an error on the server"
        r"|context deadline exceeded|Client\.Timeout exceeded",
        "the API server is overloaded or restarts; the operation is repeated",
    ),
    _transient(
        "ClusterUnreachable",
        r"unreachable(?: cluster)?\. If the cluster was deleted, you can remove",
        "check that the API server named in the kubeconfig runs and can be reached",
        "the cluster cannot be reached",
    ),
    _transient(
        "ClusterUnreachable",
        r"cluster is unreachable|due to unreachable cluster|connection refused|connection reset by peer|i/o timeout"
        r"|no route to host|network is unreachable|no such host|TLS handshake timeout|client connection lost"
        r"|unexpected EOF|: EOF\b|server misbehaving",
        "check that the API server named in the kubeconfig runs and can be reached",
    ),
)

_REST = (
    _transient(
        "StateUnavailable",
        r"blob \(code=|unable to open (?:bucket|state directory)|no such file or directory",
        "check PROVISIONER_BACKEND and the storage behind it",
    ),
)

RULES: tuple[Rule, ...] = _ENGINE + _ADMISSION + _OBJECTS + _CONNECTION + _REST
"""All of them, in the order in which they are tried."""
