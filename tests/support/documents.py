"""hypothesis strategies for the documents of services, correct ones and broken ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
KEY = st.one_of(LABEL, st.builds("{}.example.com/{}".format, LABEL, LABEL))
VALUE = st.one_of(st.just(""), st.from_regex(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,8}[A-Za-z0-9])?", fullmatch=True))
PORT_NAME = st.from_regex(r"[a-z]([a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
IMAGE = st.sampled_from(
    ["a", "a:1", "localhost/busybox:sandbox", "r.example.com:5000/a/b_c:v1.2", "a@sha256:" + "0" * 64, "[::1]:80/a"]
)
CPU = st.sampled_from(["0", "1m", "250m", "0.5", ".5", "1", "2", 1, 1.5, "1e3m"[:3], "2e0"])
MEMORY = st.sampled_from(["0", "1", "64Mi", "1Gi", "128974848", "129e6", "1.5Gi", "1000Ki", 1048576])
SHARE = st.one_of(st.integers(1, 5), st.sampled_from(["1%", "25%", "100%"]))


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, low, high in (("cpu", "100m", "2"), ("memory", "64Mi", "1Gi"), ("ephemeral-storage", "1Mi", "1Gi")):
        kind = draw(st.sampled_from(["none", "request", "limit", "both"]))
        if kind in ("request", "both"):
            found.setdefault("requests", {})[name] = low
        if kind in ("limit", "both"):
            found.setdefault("limits", {})[name] = high
    if draw(st.booleans()):
        count = draw(st.integers(0, 4))
        found.setdefault("limits", {})["nvidia.com/gpu"] = count
        if draw(st.booleans()):
            found.setdefault("requests", {})["nvidia.com/gpu"] = count
    return found


def probe(names: list[str], numbers: list[int], *, readiness: bool) -> st.SearchStrategy[dict[str, Any]]:
    ports = [*names, *numbers]
    actions = [st.builds(lambda words: {"exec": {"command": words}}, st.lists(TEXT, min_size=1, max_size=3))]
    if ports:
        port = st.sampled_from(ports)
        path = st.builds("/{}".format, LABEL)
        scheme = st.sampled_from(["HTTP", "HTTPS"])
        actions += [
            st.builds(lambda item: {"tcpSocket": {"port": item}}, port),
            st.builds(lambda a, b, c: {"httpGet": {"port": a, "path": b, "scheme": c}}, port, path, scheme),
        ]
    seconds = st.integers(1, 3600)
    options = {
        "initialDelaySeconds": st.integers(0, 3600),
        "periodSeconds": seconds,
        "timeoutSeconds": seconds,
        "failureThreshold": seconds,
        "successThreshold": seconds if readiness else st.just(1),
    }
    return st.builds(lambda action, rest: action | rest, st.one_of(*actions), optional(**options))


def requirement() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"key": KEY, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
        st.fixed_dictionaries(
            {
                "key": KEY,
                "operator": st.sampled_from(["In", "NotIn"]),
                "values": st.lists(VALUE, min_size=1, max_size=3),
            }
        ),
        st.fixed_dictionaries(
            {
                "key": KEY,
                "operator": st.sampled_from(["Gt", "Lt"]),
                "values": st.builds(lambda number: [str(number)], st.integers(0, 99)),
            }
        ),
    )


TERM = st.fixed_dictionaries({"matchExpressions": st.lists(requirement(), min_size=1, max_size=2)})
AFFINITY = optional(
    nodeRequired=st.lists(TERM, min_size=1, max_size=2),
    nodePreferred=st.lists(
        st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERM}), min_size=1, max_size=2
    ),
    replicasApart=st.sampled_from(["Required", "Preferred"]),
)
EFFECT = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
TOLERATION = st.one_of(
    st.fixed_dictionaries({"operator": st.just("Exists")}, optional={"effect": EFFECT}),
    st.fixed_dictionaries({"key": KEY, "operator": st.just("Exists")}, optional={"effect": EFFECT}),
    st.fixed_dictionaries({"key": KEY}, optional={"value": VALUE, "effect": EFFECT, "operator": st.just("Equal")}),
)
SPREAD = st.fixed_dictionaries(
    {"topologyKey": KEY},
    optional={
        "maxSkew": st.integers(1, 9),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
)


def env() -> st.SearchStrategy[dict[str, Any]]:
    secret_name = st.from_regex(r"[A-Za-z_][-._A-Za-z0-9]{0,8}", fullmatch=True)
    reference = st.fixed_dictionaries({"name": LABEL, "key": st.from_regex(r"[-_a-zA-Z0-9]{1,8}", fullmatch=True)})
    # A letter first: the API server of 1.28 and 1.29 asks for that still.
    plain = st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True), TEXT, max_size=3)
    return st.builds(
        lambda texts, references, secrets: {
            **texts,
            **{name: {"secretKeyRef": item} for name, item in references.items()},
            **{name: {"secret": item} for name, item in secrets.items()},
        },
        plain,
        st.dictionaries(st.from_regex(r"REF_[A-Z]{1,3}", fullmatch=True), reference, max_size=2),
        st.dictionaries(secret_name, TEXT, max_size=2),
    )


@st.composite
def volumes(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(LABEL, unique=True, max_size=3))
    found = []
    for name in names:
        volume: dict[str, Any] = {"name": name, "mountPath": f"/{name}"}
        if draw(st.booleans()):
            volume["claim"] = draw(
                st.fixed_dictionaries(
                    {"size": st.sampled_from(["1Gi", "10Mi", 1048576])},
                    optional={
                        "storageClass": LABEL,
                        "accessMode": st.sampled_from(
                            ["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"]
                        ),
                    },
                )
            )
        else:
            volume["emptyDir"] = draw(optional(medium=st.sampled_from(["", "Memory"]), sizeLimit=MEMORY))
        if draw(st.booleans()):
            volume["readOnly"] = True
        found.append(volume)
    return found


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A specification that is accepted, with any of all fields."""
    names = draw(st.lists(PORT_NAME, unique=True, min_size=1, max_size=3))
    numbers = draw(st.lists(st.integers(1, 65535), unique=True, min_size=len(names), max_size=len(names)))
    protocols = [draw(st.sampled_from(["TCP", "UDP"])) for _ in names]
    tcp = [index for index, protocol in enumerate(protocols) if protocol == "TCP"]
    reachable = [names[index] for index in tcp], [numbers[index] for index in tcp]
    seconds = st.one_of(st.integers(1, 86400), st.sampled_from(["90s", "15m", "1h30m", "7d"]))
    rest = optional(
        imagePullPolicy=st.sampled_from(["Always", "IfNotPresent", "Never"]),
        imagePullSecrets=st.lists(LABEL, unique=True, max_size=2),
        command=st.lists(TEXT, max_size=2),
        args=st.lists(TEXT, max_size=2),
        env=env(),
        replicas=st.integers(0, 50),
        resources=resources(),
        readinessProbe=probe(*reachable, readiness=True),
        livenessProbe=probe(*reachable, readiness=False),
        startupProbe=probe(*reachable, readiness=False),
        nodeSelector=st.dictionaries(KEY, VALUE, max_size=2),
        tolerations=st.lists(TOLERATION, max_size=2),
        affinity=AFFINITY,
        topologySpread=st.lists(SPREAD, max_size=2, unique_by=lambda item: item["topologyKey"]),
        volumes=volumes(),
        volumeRetention=optional(
            whenDeleted=st.sampled_from(["Delete", "Retain"]), whenScaled=st.sampled_from(["Delete", "Retain"])
        ),
        disruptionBudget=st.one_of(
            st.fixed_dictionaries({"minAvailable": SHARE}), st.fixed_dictionaries({"maxUnavailable": SHARE})
        ),
        maxUnavailable=SHARE,
        serviceAccount=LABEL,
        labels=st.dictionaries(KEY, VALUE, max_size=2),
        annotations=st.dictionaries(KEY, TEXT, max_size=2),
        podManagementPolicy=st.sampled_from(["Parallel", "OrderedReady"]),
        terminationGracePeriodSeconds=st.integers(0, 3600),
        startDeadline=seconds,
        ttl=seconds,
        deletionPolicy=st.sampled_from(["Delete", "Retain"]),
        drift=optional(
            policy=st.sampled_from(["correct", "report"]),
            ignore=st.lists(st.sampled_from(["replicas", "image", "resources"]), unique=True, max_size=3),
        ),
    )
    ports = [
        {"name": name, "port": number, "protocol": protocol}
        for name, number, protocol in zip(names, numbers, protocols, strict=True)
    ]
    return {"image": draw(IMAGE), "ports": ports, **draw(rest)}


BREAKS: list[dict[str, Any]] = [
    {"image": "A b"},
    {"imgae": "a"},
    {"replicas": -1},
    {"replicas": 1.5},
    {"ports": []},
    {"ports": [{"name": "a", "port": 70000}]},
    {"ports": [{"name": "a--b", "port": 1}]},
    {"env": {"A=B": "x"}},
    {"env": {"TOKEN": {"secret": 3}}},
    {"resources": {"requests": {"cpu": "many"}}},
    {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
    {"resources": {"requests": {"nvidia.com/gpu": 1}}},
    {"readinessProbe": {"tcpSocket": {"port": "no-such-port"}}},
    {"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}},
    {"startupProbe": {}},
    {"labels": {"data-service-provisioner/stack": "other"}},
    {"labels": {"a b": "c"}},
    {"nodeSelector": {"a": "-"}},
    {"tolerations": [{"value": "a"}]},
    {"volumes": [{"name": "a", "mountPath": "a", "emptyDir": {}}]},
    {"volumes": [{"name": "a", "mountPath": "/a"}]},
    {"maxUnavailable": 0},
    {"disruptionBudget": {}},
    {"startDeadline": "soon"},
    {"drift": {"policy": "fight"}},
    {"deletionPolicy": "Never"},
    {"serviceAccount": "Default"},
]


def broken_specs() -> st.SearchStrategy[dict[str, Any]]:
    """A specification with one thing wrong in it."""
    return st.builds(lambda document, fault: {**document, **fault}, specs(), st.sampled_from(BREAKS))
