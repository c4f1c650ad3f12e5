import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import SpecError, UsageError
from provisioner.registry.config import Deployment, NoteKind, RegistryConfig
from provisioner.registry.parse import load

SEED = """
plugins:
  agent-service:
    supportedTaskTypes:
      - default_task
      - custom_task
    defaultAgent:
      endpoint: "dns:///flyteagent.flyte.svc.cluster.local:8000"
      insecure: true
      timeouts:
        CreateTask: 100s
        GetTask: 1m30s
      defaultTimeout: 50ms
    agents:
      zebra:
        endpoint: "dns:///zebra:8000"
        insecure: false
        defaultServiceConfig: '{"loadBalancingConfig": [{"round_robin":{}}]}'
        timeouts:
          GetTask: 100ms
        defaultTimeout: 20ms
      apple:
        endpoint: "dns:///apple:8000"
    agentForTaskTypes:
      - custom_task: zebra
    pollInterval: 15s
    webApi: {caching: {workers: 10}}
    resourceConstraints: {}
"""


def read(tmp_path, text, **options):
    file = tmp_path / "agents.yaml"
    file.write_text(textwrap.dedent(text))
    return load(file, **options)


def problems(tmp_path, text):
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    return {problem.path: problem.accepted for problem in caught.value.problems}


def test_the_block_as_operators_write_it(tmp_path):
    config = read(tmp_path, SEED)
    assert config.default.id == "defaultAgent"
    assert config.default.endpoint == "dns:///flyteagent.flyte.svc.cluster.local:8000"
    assert config.default.insecure
    assert config.default.timeout("CreateTask") == 100
    assert config.default.timeout("GetTask") == 90
    assert config.default.timeout("DeleteTask") == 0.05
    zebra, apple = config.agents  # in the order of the file
    assert (zebra.id, zebra.insecure, zebra.timeout("GetTask"), zebra.timeout("CreateTask")) == (
        "zebra",
        False,
        0.1,
        0.02,
    )
    assert "round_robin" in zebra.service_config
    # Flyte's own defaults: a named agent uses TLS and has no limit.
    assert (apple.insecure, apple.timeout("CreateTask")) == (False, None)
    assert dict(config.explicit) == {"custom_task": "zebra"}
    assert config.supported == ("default_task", "custom_task")
    assert config.poll_interval == 15
    assert config.notes == ()
    assert [item.id for item in config.deployments] == ["zebra", "apple", "defaultAgent"]


def test_the_newer_names_and_defaults(tmp_path):
    config = read(
        tmp_path,
        """
        connector-service:
          defaultConnector: {endpoint: "c:8000"}
          connectors: {x: {endpoint: "x:1", timeouts: {ListConnectors: 2s}}}
          connectorForTaskTypes: {t: x}
        """,
    )
    assert (config.default.id, config.default.insecure, config.default.timeout("GetTask")) == (
        "defaultConnector",
        True,
        10,
    )
    assert config.agents[0].list_timeout(10) == 2
    assert dict(config.explicit) == {"t": "x"}


def test_the_older_default_timeout(tmp_path):
    assert read(tmp_path, "agent-service: {defaultAgent: {endpoint: 'a:1'}}").default.timeout("GetTask") == 3


def test_a_mapping_may_be_a_list_and_keys_may_have_any_case(tmp_path):
    config = read(
        tmp_path,
        """
        Plugins:
          Agent-Service:
            DEFAULTAGENT: {Endpoint: "a:1"}
            agents: [{Mixed: {endpoint: "m:1", timeouts: [{createtask: 1s}, {GETTASK: 2s}]}}]
            agentForTaskTypes: [{One: mixed}, {Two: Mixed}]
        """,
    )
    assert config.agents[0].timeout("CreateTask") == 1
    assert config.agents[0].timeout("GetTask") == 2
    assert dict(config.explicit) == {"One": "Mixed", "Two": "Mixed"}


CONFIGMAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: flyte-propeller-config, namespace: flyte}
data:
  admin.yaml: "admin: {endpoint: 'flyteadmin:81'}"
  notes.txt: "{{ not yaml: [ }"
  core.yaml: |
    plugins:
      agent-service:
        defaultAgent: {endpoint: "first:1", defaultTimeout: 7s}
  enabled_plugins.yaml: |
    tasks:
      task-plugins:
        default-for-task-types: [{sensor: agent-service}]
    plugins:
      agent-service:
        defaultAgent: {endpoint: "second:1"}
        agents: {a: {endpoint: "a:1", insecure: true}}
"""


def test_a_propellers_configmap_as_it_is(tmp_path):
    config = read(tmp_path, CONFIGMAP)
    # Later files of the ConfigMap are laid over earlier ones, as the propeller does.
    assert (config.default.endpoint, config.default.timeout("GetTask")) == ("second:1", 7)
    assert config.agents[0].id == "a"


def test_a_list_of_configmaps_and_several_documents(tmp_path):
    items = textwrap.indent(textwrap.dedent(CONFIGMAP), "    ").replace("    apiVersion", "  - apiVersion", 1)
    config = read(tmp_path, f"kind: List\nitems:\n{items}\n---\nagent-service: {{pollInterval: 3s}}\n")
    assert (config.default.endpoint, config.poll_interval) == ("second:1", 3)


def test_a_mounted_configmap_is_a_folder(tmp_path):
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "x.yaml").write_text("broken: [")
    (tmp_path / ".hidden.yaml").write_text("broken: [")
    (tmp_path / "readme.txt").write_text("broken: [")
    (tmp_path / "a.yaml").write_text("plugins: {agent-service: {defaultAgent: {endpoint: 'a:1'}}}")
    (tmp_path / "b.yml").write_text("plugins: {agent-service: {defaultAgent: {endpoint: 'b:1'}}}")
    assert load(tmp_path).default.endpoint == "b:1"


def test_both_blocks_and_one_name_for_two_agents(tmp_path):
    config = read(
        tmp_path,
        """
        agent-service:
          defaultAgent: {endpoint: "d:1"}
          agents: {x: {endpoint: "old:1"}, same: {endpoint: "s:1"}}
          agentForTaskTypes: {a: x}
        connector-service:
          defaultConnector: {endpoint: "e:1"}
          connectors: {x: {endpoint: "new:1"}, same: {endpoint: "s:1"}}
          connectorForTaskTypes: {b: x}
        """,
    )
    assert config.default.endpoint == "d:1"
    assert [(item.id, item.endpoint) for item in config.agents] == [
        ("x", "old:1"),
        ("same", "s:1"),
        ("connector-service/x", "new:1"),
        ("defaultConnector", "e:1"),
    ]
    assert dict(config.explicit) == {"a": "x", "b": "connector-service/x"}


def test_every_mistake_is_named_at_once(tmp_path):
    found = problems(
        tmp_path,
        """
        agent-service:
          defaultAgent: {endpoint: "a b", insecure: maybe, defaultTimeout: 100, timeouts: {GetTask: 10 s}}
          agents:
            none: {insecure: true}
            bad: {endpoint: "x:1", defaultServiceConfig: "{", certFile: nowhere.pem, defaultTimeout: -1s}
            list: [1]
          agentForTaskTypes: [a, b]
          supportedTaskTypes: {a: b}
          pollInterval: "0"
        """,
    )
    start = "agent-service"
    assert set(found) == {
        f"{start}.defaultAgent.endpoint",
        f"{start}.defaultAgent.insecure",
        f"{start}.defaultAgent.defaultTimeout",
        f"{start}.defaultAgent.timeouts.GetTask",
        f"{start}.agents.none.endpoint",
        f"{start}.agents.bad.defaultServiceConfig",
        f"{start}.agents.bad.certFile",
        f"{start}.agents.bad",
        f"{start}.agents.bad.defaultTimeout",
        f"{start}.agents.list",
        f"{start}.agents.list.endpoint",
        f"{start}.agentForTaskTypes",
        f"{start}.supportedTaskTypes",
        f"{start}.pollInterval",
    }
    assert "nanoseconds" in found[f"{start}.defaultAgent.defaultTimeout"]


def test_what_is_odd_becomes_a_note_and_not_an_error(tmp_path):
    policy = '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3}, "timeout": "1s"}]}'
    config = read(
        tmp_path,
        f"""
        agent-service:
          defaultAgnet: {{endpoint: "typo:1"}}
          defaultAgent: {{endpoint: "host", timeouts: {{CreateTsk: 1s}}, defaultServiceConfig: '{policy}'}}
          agentForTaskTypes: {{Upper: x}}
          novelty: 1
        connector-service:
          connectorForTaskTypes: [{{a: x}}, {{a: y}}]
        """,
    )
    kinds = {note.path.split(".", 1)[1]: note.kind for note in config.notes}
    assert kinds == {
        "defaultAgnet": NoteKind.UNKNOWN,
        "novelty": NoteKind.UNKNOWN,
        "defaultAgent.endpoint": NoteKind.ODD,
        "defaultAgent.timeouts.CreateTsk": NoteKind.UNKNOWN,
        "defaultAgent.defaultServiceConfig.retryPolicy": NoteKind.LEFT_OUT,
        "agentForTaskTypes.Upper": NoteKind.LOWERED,
        "connectorForTaskTypes.a": NoteKind.REPEATED,
    }
    assert "did you mean defaultAgent?" in str(config.notes[0])
    # A retry policy would repeat a CreateTask.
    assert "retryPolicy" not in config.default.service_config
    assert '"timeout": "1s"' in config.default.service_config
    assert config.explicit["a"] == "y"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 1, column 5"),
        ("agent-service: {}\nagent-service: {}", "stands here twice"),
        ("a: \x00", "must be YAML"),
        ("!!python/object/apply:os.system ['true']", "must be YAML"),
        ("just text", "must name a defaultAgent"),
        ("", "must name a defaultAgent"),
        ("agent-service: {defaultAgent: {endpoint: ''}}", "must name a defaultAgent"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path, text, said):
    with pytest.raises(SpecError, match=said):
        read(tmp_path, text)


def test_a_broken_value_of_a_configmap_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"agents\.yaml, key core\.yaml is not valid: line 1"):
        read(tmp_path, "kind: ConfigMap\ndata: {core.yaml: 'plugins: {agent-service: ['}")


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read the configuration"):
        load(tmp_path / "missing.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        load(binary)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (8 * 2**20 + 1))
    with pytest.raises(UsageError, match="8 MiB"):
        load(large)


def test_it_may_be_empty_when_agents_are_discovered(tmp_path):
    assert read(tmp_path, "other: 1", may_be_empty=True).deployments == ()


def test_files_are_found_beside_the_configuration(tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    config = read(
        tmp_path, "agent-service: {defaultAgent: {endpoint: 'a:1', insecure: 'False', caFile: ca.pem, serverName: n}}"
    )
    assert config.default.tls.ca == tmp_path / "ca.pem"
    assert config.default.tls.server_name == "n"
    assert not config.default.insecure


def test_the_watch_does_not_wait_as_long_as_a_task_may(tmp_path):
    slow = Deployment("a", "a:1", default_timeout=100)
    assert slow.list_timeout(10) == 10
    assert Deployment("a", "a:1").list_timeout(10) == 10
    assert Deployment("a", "a:1", default_timeout=3).list_timeout(10) == 3
    assert Deployment("a", "a:1", timeouts={"ListAgents": 30}, default_timeout=3).list_timeout(10) == 30


def test_what_is_written_down_goes_before_what_is_discovered():
    config = RegistryConfig("t", default=Deployment("defaultAgent", "d:1"), agents=(Deployment("a", "a:1"),))
    found = (Deployment("ns/new", "n:1"), Deployment("ns/known", "a:1"), Deployment("a", "other:1"))
    assert [item.id for item in config.with_discovered(found).deployments] == ["a", "ns/new", "defaultAgent"]


texts = st.text(max_size=10)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), texts, st.just("10s"))
keys = st.sampled_from(
    [
        "defaultAgent",
        "agents",
        "agentForTaskTypes",
        "endpoint",
        "insecure",
        "timeouts",
        "defaultTimeout",
        "pollInterval",
        "supportedTaskTypes",
        "GetTask",
        "defaultServiceConfig",
        "x",
    ]
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


@given(tree=trees)
def test_any_document_is_read_or_refused_with_places(tmp_path_factory, tree):
    import yaml

    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(yaml.safe_dump({"plugins": {"agent-service": tree}}))
    try:
        config = load(file, may_be_empty=True)
    except SpecError as error:
        assert all(problem.path for problem in error.problems)  # noqa: PT017
        return
    for deployment in config.deployments:
        assert deployment.endpoint
        assert all(seconds >= 0 for seconds in deployment.timeouts.values())
