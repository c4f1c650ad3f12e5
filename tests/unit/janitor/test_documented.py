"""What docs/janitor.md grants and names is what the code needs and knows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from provisioner.cluster import Permission
from provisioner.janitor import metrics
from provisioner.janitor.permissions import FLYTEWORKFLOWS, SWEEP, election
from provisioner.janitor.rules import read_rules
from provisioner.janitor.settings import ENV_PREFIX, JanitorSettings

DOCUMENT = (Path(__file__).parents[3] / "docs/janitor.md").read_text()


def documents(kind: str) -> list[dict[str, Any]]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    return [item for block in blocks for item in yaml.safe_load_all(block) if item.get("kind") == kind]


def granted(kind: str) -> set[tuple[str, str, str]]:
    """Verb, group and resource of each right."""
    return {
        (verb, group, resource)
        for document in documents(kind)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(permissions: tuple[Permission, ...]) -> set[tuple[str, str, str]]:
    return {(item.verb, item.group, item.resource) for item in permissions}


def test_the_roles_grant_what_is_needed_and_no_more():
    # The types of owner objects are the deployment's own; the document has one as an example.
    assert granted("ClusterRole") - {("list", "batch", "jobs")} == needed(SWEEP + FLYTEWORKFLOWS)
    assert granted("Role") == needed(election("any"))


def test_the_election_is_bound_to_its_lease():
    (role,) = documents("Role")
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named == [[JanitorSettings().lease]]


def test_the_cronjob_sets_what_is_a_setting():
    (job,) = documents("CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    names = {item["name"] for item in container["env"] if item["name"].startswith(ENV_PREFIX)}
    assert names <= {f"{ENV_PREFIX}{name.upper()}" for name in JanitorSettings.model_fields}


def test_the_example_of_rules_is_accepted(tmp_path: Path):
    (example,) = re.findall(r"^```yaml\n(rules:.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    path = tmp_path / "rules.yaml"
    path.write_text(example)
    assert len(read_rules(path)) == example.count("\n- ")


def test_every_metric_is_documented():
    named = set(re.findall(r"`(provisioner_gc_\w+)", DOCUMENT))
    families = [metric.describe()[0] for metric in metrics.ALL]
    assert named == {family.name + ("_total" if family.type == "counter" else "") for family in families}
