"""The stack program under the plain `pulumi` command: specification and identity from stack configuration.

config:
  data-service:identity: {project: flyte, domain: production, ...}   # optional
  data-service:spec:
    image: registry.example.com/team/store:1
    ports: [{name: grpc, port: 9000}]
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace

import pulumi

from provisioner.errors import Problem, SpecError
from provisioner.identity import Identity, for_name
from provisioner.resources import program
from provisioner.spec import parse_spec
from provisioner.spec.load import is_service_name

# Where a service belongs that nobody placed; Flyte's own defaults.
DEFAULT_PROJECT = "flytesnacks"
DEFAULT_DOMAIN = "development"


def _identity(config: pulumi.Config) -> Identity:
    name = config.get("name") or pulumi.get_stack()
    source = f"Pulumi.{pulumi.get_stack()}.yaml"
    if not is_service_name(name):
        raise SpecError(
            [Problem("data-service:name", repr(name), "up to 52 of a-z, 0-9 and dashes, starting with a letter")],
            source=source,
        )
    identity = for_name(DEFAULT_PROJECT, DEFAULT_DOMAIN, namespace=config.get("namespace") or "default", name=name)
    identity = replace(identity, stack=pulumi.get_stack())
    given = config.get_object("identity") or {}
    known = [field.name for field in fields(Identity)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SpecError(
            [Problem(f"data-service:identity.{key}", "", f"unknown; known are {', '.join(known)}") for key in unknown],
            source=source,
        )
    return Identity(**{**asdict(identity), **given})


def program_from_config() -> None:
    """Register the service that the stack's configuration describes.

    Raises:
        SpecError: The configuration is not valid; every problem is named.
    """
    config = pulumi.Config("data-service")
    source = f"Pulumi.{pulumi.get_stack()}.yaml"
    document = config.get_object("spec")
    if document is None:
        raise SpecError([Problem("data-service:spec", "", "required: the service's specification")], source=source)
    program(_identity(config), parse_spec(document, source=source))()
