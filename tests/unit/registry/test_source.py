"""The configuration is read again when its file changes, and a broken one never replaces a good one."""

import os

import pytest
import structlog

from provisioner.errors import ProvisionerError
from provisioner.registry.metrics import Metrics
from provisioner.registry.source import ConfigSource


def text(endpoint):
    return f"agent-service: {{defaultAgent: {{endpoint: '{endpoint}'}}}}"


@pytest.fixture
def metrics():
    return Metrics()


def valid(metrics):
    return metrics.registry.get_sample_value("agent_registry_config_valid")


def test_a_change_is_seen_once(tmp_path, metrics):
    file = tmp_path / "a.yaml"
    file.write_text(text("a:1"))
    source = ConfigSource(file)
    assert not source.reload(metrics)
    file.write_text(text("longer:1"))
    assert source.reload(metrics)
    assert source.config.default.endpoint == "longer:1"
    assert not source.reload(metrics)


def test_a_touched_file_is_no_change(tmp_path, metrics):
    file = tmp_path / "a.yaml"
    file.write_text(text("a:1"))
    source = ConfigSource(file)
    os.utime(file, ns=(1, 1))
    assert not source.reload(metrics)
    assert not source.reload(metrics, force=True)


def test_a_broken_file_keeps_the_old_one_loudly_and_a_mended_one_is_taken(tmp_path, metrics):
    file = tmp_path / "a.yaml"
    file.write_text(text("a:1"))
    source = ConfigSource(file)
    file.write_text("agent-service: {defaultAgent: {endpoint: 1}}")
    with structlog.testing.capture_logs() as logs:
        assert not source.reload(metrics)
        assert not source.reload(metrics)
    assert source.config.default.endpoint == "a:1"
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "agent-service.defaultAgent.endpoint" in logs[0]["problem"]
    assert "defaultAgent.endpoint" in source.error
    assert valid(metrics) == 0
    file.unlink()
    assert not source.reload(metrics)
    assert "cannot read" in source.error
    file.write_text(text("b:1"))
    assert source.reload(metrics)
    assert (source.config.default.endpoint, source.error, valid(metrics)) == ("b:1", "", 1)


def test_the_swap_of_a_mounted_configmap_is_seen(tmp_path, metrics):
    """Kubernetes lays each version into a folder of its own and swaps one symbolic link."""
    for version, endpoint in (("v1", "a:1"), ("v2", "b:1")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "agents.yaml").write_text(text(endpoint))
        os.utime(tmp_path / version / "agents.yaml", ns=(1, 1))
    data, file = tmp_path / "..data", tmp_path / "agents.yaml"
    data.symlink_to("v1")
    file.symlink_to("..data/agents.yaml")
    by_file, by_folder = ConfigSource(file), ConfigSource(tmp_path)
    swapped = tmp_path / "..data_tmp"
    swapped.symlink_to("v2")
    swapped.rename(data)
    assert by_file.reload(metrics)
    assert by_folder.reload(metrics)
    assert by_file.config.default.endpoint == by_folder.config.default.endpoint == "b:1"


def test_a_new_file_in_the_folder_is_seen(tmp_path, metrics):
    (tmp_path / "a.yaml").write_text(text("a:1"))
    source = ConfigSource(tmp_path)
    (tmp_path / "b.yaml").write_text(text("b:1"))
    assert source.reload(metrics)
    assert source.config.default.endpoint == "b:1"


def test_the_first_reading_must_work(tmp_path):
    with pytest.raises(ProvisionerError):
        ConfigSource(tmp_path / "missing.yaml")


def test_without_a_file_there_is_nothing_to_read_again(metrics):
    source = ConfigSource(None, discovering=True)
    assert not source.reload(metrics)
    assert source.config.deployments == ()
