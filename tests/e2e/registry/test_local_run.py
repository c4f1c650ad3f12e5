"""A workflow that runs locally has its agent tasks executed by the deployed agents."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from flytekit import workflow
from flytekit.core.base_task import PythonTask
from flytekit.core.interface import Interface
from flytekit.extend.backend.base_connector import (
    ConnectorRegistry,
    SyncConnectorExecutorMixin,
)
from flytekit.sensor.sensor_engine import SensorEngine

from provisioner.engine import Engine
from provisioner.errors import PermanentError
from provisioner.flyte import DataService, DataServiceTask
from provisioner.registry.local import RemoteAsyncConnector, route_local_tasks

from .conftest import SERVICE, write_config


class Prompt(SyncConnectorExecutorMixin, PythonTask):
    def __init__(self, name: str) -> None:
        super().__init__(task_type="prompt", name=name, task_config=None, interface=Interface(inputs={"text": str}))


service = DataServiceTask(name="service", task_config=SERVICE)
prompt = Prompt("prompt")


@workflow
def local_workflow(text: str) -> DataService:
    prompt(text=text)
    return service()


@pytest.fixture(scope="module")
def agents(module_fleet, settings):
    """The connector of this project and an old-style agent for sync tasks."""
    connector = module_fleet.data_service(settings)
    old = module_fleet.old_style("old", "--type", "sync:prompt")
    config = write_config(
        module_fleet.folder / "agents.yaml",
        {
            "agents": {
                "data-service": {"endpoint": connector.endpoint, "insecure": True},
                "old": {"endpoint": old.endpoint, "insecure": True},
            }
        },
    )
    connector.ready()
    return config, old


def test_a_workflow_runs_on_the_deployed_agents(agents, settings):
    config, old = agents
    before = dict(ConnectorRegistry._REGISTRY)
    with route_local_tasks(config) as routes:
        assert {("dataservicetask", 0, "data-service"), ("prompt", 0, "old")} <= set(routes.routed)
        graph = local_workflow(text="hello")
    assert graph.name.startswith("graph-store-")
    assert graph.stack in Engine(settings).state.stacks()
    (address,) = graph.dns_addresses()
    assert address == f"{graph.name}-0.{graph.dns_name}:9000"
    assert before == ConnectorRegistry._REGISTRY
    event = old.events()[-1]
    assert (event["method"], event["type"]) == ("ExecuteTaskSync", "prompt")


def test_only_the_types_named_are_sent_away(agents):
    config, _ = agents
    sensor = ConnectorRegistry.get_connector("sensor")
    assert isinstance(sensor, SensorEngine)
    with route_local_tasks(config, ["dataservicetask"]):
        assert ConnectorRegistry.get_connector("sensor") is sensor
        assert isinstance(ConnectorRegistry.get_connector("dataservicetask"), RemoteAsyncConnector)


def test_a_type_that_nobody_serves_is_said_at_once(agents):
    config, _ = agents
    before = dict(ConnectorRegistry._REGISTRY)
    with pytest.raises(PermanentError, match=r"'unheard'; known are: dataservicecleanup \(0\), dataservicetask \(0\)"):
        route_local_tasks(config, ["unheard"])
    assert before == ConnectorRegistry._REGISTRY


def test_an_agent_that_fails_fails_the_workflow(agents, fleet, tmp_path):
    """The agent's state of the task, not the call, decides: UNDEFINED with no state means a failure to Flyte."""
    broken = fleet.old_style("broken", "--type", "async:dataservicetask")
    config = write_config(tmp_path / "agents.yaml", {"defaultAgent": {"endpoint": broken.endpoint}})
    with route_local_tasks(config, ["dataservicetask"]) as routes:
        connector = ConnectorRegistry.get_connector("dataservicetask")
        meta = connector.create(task_template=service_template(), output_prefix="")
        assert routes.routed == (("dataservicetask", 0, "defaultAgent"),)
        with pytest.raises(PermanentError, match="no such luck"):
            connector.get(type(meta)(b"fail"))
        connector.delete(meta)
    assert [event["method"] for event in broken.events()] == ["CreateTask", "GetTask", "DeleteTask"]


def service_template():
    from flytekit.models.task import TaskTemplate

    from .conftest import template

    return TaskTemplate.from_flyte_idl(template("dataservicetask"))


def test_pyflyte_run_uses_them_too(agents, tmp_path):
    config, _ = agents
    module = tmp_path / "flow.py"
    module.write_text(
        textwrap.dedent(f"""
        from flytekit import workflow
        from provisioner.flyte import DataService, DataServiceConfig, DataServiceTask
        from provisioner.registry.local import route_local_tasks
        from provisioner.spec import Port

        route_local_tasks({str(config)!r}, ["dataservicetask"])
        service = DataServiceTask(name="service", task_config=DataServiceConfig(
            name="from-pyflyte", image={SERVICE.image!r}, command={SERVICE.command!r}, replicas=1,
            ports=[Port(name="main", port=9000)], termination_grace_period_seconds=1,
        ))

        @workflow
        def flow() -> DataService:
            return service()
        """)
    )
    pyflyte = str(Path(sys.executable).with_name("pyflyte"))
    done = subprocess.run(
        [pyflyte, "run", str(module), "flow"], capture_output=True, text=True, timeout=240, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "from-pyflyte" in done.stdout
