"""The stack program under the plain `pulumi` command: one service, from the stack's configuration or from a file.

config:
  data-service:file: examples/01-smallest.yaml   # or, in the configuration itself:
  data-service:spec:
    image: registry.example.com/team/store:1
    ports: [{name: grpc, port: 9000}]
  data-service:name: graph                       # the stack's name when there is none
  data-service:identity: {stack: graph-t74whaj3ye, ...}   # written by `provisioner checkout`

The same input as a service of the connector or of `provisioner apply` has gives
the same objects, so a stack of theirs shows no change here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pulumi
from pydantic import SecretStr

from provisioner import settings
from provisioner.errors import Problem, ProvisionerError, SpecError, UsageError
from provisioner.identity import Identity, Origin, for_name
from provisioner.passphrase import passphrase, read_passphrase
from provisioner.resources.component import program
from provisioner.sealing import Sealer
from provisioner.spec import DataServiceSpec, parse_spec
from provisioner.spec.documents import Metadata, ServiceDocument, parse_documents
from provisioner.spec.load import is_service_name


@dataclass(frozen=True)
class StackConfig:
    """What the configuration of one stack says.

    Attributes:
        stack: Name of the stack.
        name: `data-service:name`, or None.
        namespace: `data-service:namespace`, or None.
        identity: `data-service:identity`.
        origin: `data-service:origin`.
        spec: `data-service:spec`, or None.
        file: `data-service:file`, or None.
    """

    stack: str
    name: str | None = None
    namespace: str | None = None
    identity: Mapping[str, Any] | None = None
    origin: Mapping[str, Any] | None = None
    spec: Any = None
    file: str | None = None

    @property
    def source(self) -> str:
        """Where it stands, for errors."""
        return f"Pulumi.{self.stack}.yaml"


def service(config: StackConfig, root: Path, defaults: settings.Settings) -> tuple[Identity, DataServiceSpec]:
    """The service that a configuration describes.

    Args:
        config: The stack's configuration.
        root: Folder that a file is relative to.
        defaults: Project, domain and namespace of a service that names none.

    Raises:
        SpecError: It is not valid; every problem is named.
        UsageError: The file cannot be read.
    """
    if (config.spec is None) == (config.file is None):
        problem = Problem("data-service:spec", "", "required: the specification, or data-service:file with its path")
        raise SpecError([problem], source=config.source)
    if config.file is not None:
        document = _from_file(root / config.file, config)
        return _identity(config, document.metadata, defaults), document.spec
    name = config.name or config.stack
    if not is_service_name(name):
        accepted = "up to 52 of a-z, 0-9 and dashes, starting with a letter"
        raise SpecError([Problem("data-service:name", repr(name), accepted)], source=config.source)
    identity = _identity(config, Metadata(name=name, namespace=config.namespace), defaults)
    return identity, parse_spec(config.spec, source=config.source)


def _from_file(path: Path, config: StackConfig) -> ServiceDocument:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data-service:file: {path} cannot be read: {error}") from error
    documents = parse_documents(text, source=str(path))
    chosen = [document for document in documents if config.name in (None, document.metadata.name)]
    if len(chosen) != 1:
        names = ", ".join(document.metadata.name for document in documents)
        problem = Problem("data-service:name", repr(config.name or ""), f"the name of one service in {path}: {names}")
        raise SpecError([problem], source=config.source)
    return chosen[0]


def _identity(config: StackConfig, metadata: Metadata, defaults: settings.Settings) -> Identity:
    identity = for_name(
        metadata.project or defaults.project,
        metadata.domain or defaults.domain,
        namespace=config.namespace or metadata.namespace or defaults.namespace,
        name=metadata.name,
    )
    given = _known("identity", config.identity or {}, Identity, config)
    # Whatever else is said, the objects are labelled with the stack that they are in.
    return Identity(**{**asdict(replace(identity, stack=config.stack)), **given})


def origin(config: StackConfig) -> Origin:
    """Where the service is recorded and runs, as far as the configuration tells.

    Args:
        config: The stack's configuration.

    Raises:
        SpecError: It has unknown keys.
    """
    return Origin(**_known("origin", config.origin or {}, Origin, config))


def _known(key: str, given: Mapping[str, Any], kind: type[Identity | Origin], config: StackConfig) -> dict[str, str]:
    """The texts of a mapping in the configuration, none of which is unknown."""
    known = [field.name for field in fields(kind)]
    problems = [
        Problem(f"data-service:{key}.{name}", "", f"unknown; known are {', '.join(known)}")
        for name in sorted(set(given) - set(known))
    ]
    if problems:
        raise SpecError(problems, source=config.source)
    return {name: str(value) for name, value in given.items()}


def _passphrase() -> SecretStr:
    """The passphrase that this `pulumi` was given."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return SecretStr(os.environ["PULUMI_CONFIG_PASSPHRASE"])
    if "PULUMI_CONFIG_PASSPHRASE_FILE" in os.environ:
        return read_passphrase(Path(os.environ["PULUMI_CONFIG_PASSPHRASE_FILE"]))
    return passphrase(settings.load())


def _root() -> Path:
    """The folder with Pulumi.yaml; not every language host tells it."""
    told = pulumi.runtime.get_root_directory()
    if told:
        return Path(told)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "Pulumi.yaml").is_file()), here)


def program_from_config() -> None:
    """Register the service that the stack's configuration describes.

    Raises:
        RunError: The configuration is not valid, with every problem in it; or
            a file or a secret of it cannot be read. Pulumi shows it without a
            traceback.
    """
    values = pulumi.Config("data-service")
    try:
        config = StackConfig(
            stack=pulumi.get_stack(),
            name=values.get("name") or None,
            namespace=values.get("namespace") or None,
            identity=values.get_object("identity"),
            origin=values.get_object("origin"),
            spec=values.get_object("spec"),
            file=values.get("file") or None,
        )
        identity, spec = service(config, _root(), settings.load())
        sealer = Sealer(_passphrase)
        run = program(identity, sealer.sealed(spec, identity.stack), sealer, origin(config))
    except ProvisionerError as error:
        raise pulumi.RunError(f"{error.message}\nhint: {error.hint}" if error.hint else error.message) from error
    run()
