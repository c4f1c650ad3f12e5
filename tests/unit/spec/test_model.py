"""What is accepted as a specification, and what is said about the rest."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import SpecError
from provisioner.spec import DataServiceSpec, parse_spec

MINIMAL = {"image": "localhost/store:1", "ports": [{"name": "grpc", "port": 9000}]}


def problems(document: object) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(document)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_minimal_gets_defaults():
    spec = parse_spec(MINIMAL)
    assert (spec.replicas, spec.pod_management_policy, spec.start_deadline, spec.ttl) == (1, "Parallel", 1800, None)


def test_all_problems_are_reported_at_once():
    found = problems(
        {
            "image": "A B",
            "ports": [{"name": "UPPER", "port": 70000}],
            "replicas": -1,
            "ttl": "soon",
            "resources": {"requests": {"cpu": "many"}},
        }
    )
    assert set(found) == {
        "image",
        "ports[0].name",
        "ports[0].port",
        "replicas",
        "ttl",
        "resources.requests.cpu",
    }


def test_rules_over_several_fields_are_reported_with_the_fields_that_are_wrong_in_themselves():
    found = problems(
        {
            "image": "A B",
            "ports": [{"name": "grpc", "port": 9000}],
            "replicas": "three",
            "readinessProbe": {"tcpSocket": {"port": "http"}},
            "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            "maxUnavailable": 0,
            "volumes": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "b", "emptyDir": {}}],
        }
    )
    assert set(found) == {
        "image",
        "replicas",
        "readinessProbe.tcpSocket.port",
        "resources.limits.cpu",
        "resources.limits.memory",
        "maxUnavailable",
        "volumes[0]",
        "volumes[1].mountPath",
    }


def test_a_probe_is_not_blamed_for_ports_that_are_wrong():
    found = problems(
        {
            "image": "a",
            "ports": [{"name": "GRPC", "port": 9000}],
            "readinessProbe": {"tcpSocket": {"port": "grpc"}},
            "maxUnavailable": 0,
        }
    )
    assert set(found) == {"ports[0].name", "maxUnavailable"}


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [
        ("replica", "replicas"),
        ("prots", "ports"),
        ("readynessProbe", "readinessProbe"),
        ("start_deadlin", "startDeadline"),
    ],
)
def test_misspelt_field_names_the_likely_one(wrong: str, suggestion: str):
    assert f"did you mean {suggestion}?" in problems({**MINIMAL, wrong: 1})[wrong]


def test_misspelt_field_inside_a_nested_part():
    found = problems({**MINIMAL, "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSecond": 3}})
    assert found["readinessProbe.periodSecond"].endswith("did you mean periodSeconds?")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"readinessProbe": {"tcpSocket": {"port": "http"}}}, "readinessProbe.tcpSocket.port"),
        ({"livenessProbe": {"tcpSocket": {"port": "grpc"}, "successThreshold": 2}}, "livenessProbe.successThreshold"),
        ({"readinessProbe": {}}, "readinessProbe"),
        ({"readinessProbe": {"tcpSocket": {"port": "grpc"}, "exec": {"command": ["true"]}}}, "readinessProbe"),
        ({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}}}, "resources.limits.cpu"),
        ({"resources": {"requests": {"nvidia.com/gpu": 1}}}, "resources.limits.nvidia.com/gpu"),
        (
            {"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}},
            "resources.limits.nvidia.com/gpu",
        ),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, "ports[1].name"),
        ({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}, "ports[1].port"),
        ({"volumes": [{"name": "a", "mountPath": "/a"}]}, "volumes[0]"),
        ({"volumes": [{"name": n, "mountPath": "/a", "emptyDir": {}} for n in "ab"]}, "volumes[1].mountPath"),
        ({"volumes": [{"name": "a", "mountPath": m, "emptyDir": {}} for m in ("/a", "/b")]}, "volumes[1].name"),
        ({"disruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}, "disruptionBudget"),
        ({"maxUnavailable": "0%"}, "maxUnavailable"),
        ({"drift": {"ignore": ["env"]}}, "drift.ignore[0]"),
        ({"labels": {"data-service-provisioner/stack": "mine"}}, "labels.data-service-provisioner/stack"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations[0].value"),
        ({"tolerations": [{"value": "b"}]}, "tolerations[0].operator"),
        (
            {"affinity": {"nodeRequired": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}},
            "affinity.nodeRequired[0].matchExpressions[0].values",
        ),
        ({"command": "sleep 1"}, "command"),
        ({"replicas": 1.5}, "replicas"),
        ({"replicas": True}, "replicas"),
        ({"env": {"A=B": "x"}}, "env.A=B"),
    ],
)
def test_rules_name_the_field(change: dict[str, object], path: str):
    assert path in problems({**MINIMAL, **change})


def test_misspelt_reference_of_a_variable():
    found = problems({**MINIMAL, "env": {"TOKEN": {"secretKeyRe": {"name": "a", "key": "b"}}}})
    assert found["env.TOKEN.secretKeyRe"].endswith("did you mean secretKeyRef?")


def test_variable_of_a_wrong_type():
    assert "string" in problems({**MINIMAL, "env": {"TOKEN": 3}})["env.TOKEN"]


def test_empty_ports_are_too_few():
    assert "at least 1" in problems({**MINIMAL, "ports": []})["ports"]


def test_paused_service_is_allowed():
    assert parse_spec({**MINIMAL, "replicas": 0}).replicas == 0


def test_values_of_env_never_appear_in_an_error():
    with pytest.raises(SpecError) as caught:
        parse_spec({**MINIMAL, "env": {"TOKEN": {"secretKeyRef": "hunter2"}, "X": ["hunter2"]}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("document", [None, [], "image", 3])
def test_not_a_mapping(document: object):
    assert "a mapping of fields" in problems(document)["spec"]


names = st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True).filter(lambda name: "--" not in name)
specs = st.builds(
    lambda image, ports, replicas, env, ttl, labels: {
        "image": image,
        "ports": [{"name": name, "port": 1000 + index} for index, name in enumerate(sorted(ports))],
        "replicas": replicas,
        "env": env,
        **({"ttl": f"{ttl}s"} if ttl else {}),
        "labels": labels,
    },
    image=st.sampled_from(["a", "r.example.com:5000/a/b:1", "a@sha256:" + "0" * 64]),
    ports=st.sets(names, min_size=1, max_size=3),
    replicas=st.integers(0, 50),
    env=st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=5), max_size=3),
    ttl=st.integers(0, 10_000),
    labels=st.dictionaries(names, names, max_size=2),
)


@given(specs)
def test_canonical_json_is_a_fixed_point(document: dict[str, object]):
    spec = parse_spec(document)
    again = parse_spec(json.loads(spec.canonical_json()))
    assert again == spec
    assert again.digest() == spec.digest()


@given(specs, st.randoms())
def test_digest_does_not_depend_on_the_order_of_keys(document: dict[str, object], random):
    items = list(document.items())
    random.shuffle(items)
    env = list(document["env"].items())  # type: ignore[attr-defined]
    random.shuffle(env)
    shuffled = {**dict(items), "env": dict(env)}
    assert parse_spec(shuffled).digest() == parse_spec(document).digest()


@given(specs, specs)
def test_different_specifications_have_different_digests(one: dict[str, object], two: dict[str, object]):
    first, second = parse_spec(one), parse_spec(two)
    assert (first.digest() == second.digest()) == (first == second)


def test_every_field_is_described():
    schema = DataServiceSpec.model_json_schema(by_alias=True)
    for name, model in {"DataServiceSpec": schema, **schema["$defs"]}.items():
        for field, value in model.get("properties", {}).items():
            assert value.get("description"), f"{name}.{field}"
