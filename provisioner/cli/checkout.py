"""`provisioner checkout` and `forget`: a stack for plain `pulumi`, and the end of a record whose cluster is gone."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provisioner.cli.options import DomainOption, NameArgument, NamespaceOption, ProjectOption
from provisioner.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provisioner.settings import Settings


def checkout(
    name: NameArgument,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder with the repository's Pulumi.yaml.", file_okay=False, exists=True)
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that differs.")] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
) -> None:
    """Write Pulumi.STACK.yaml, for plain `pulumi`.

    Prints the environment that `pulumi` needs: eval "$(provisioner checkout NAME)".
    """
    from provisioner.cli.session import Session
    from provisioner.control.checkout import stack_file
    from provisioner.errors import RefusedError, UsageError

    session = Session(namespace, project, domain)
    found = session.find(name)
    request = found.request()
    assert found.record is not None  # noqa: S101 - else it had no request
    if not (folder / "Pulumi.yaml").is_file():
        raise UsageError(
            f"{folder.resolve()} has no Pulumi.yaml", hint="run it in the repository's root, or name that with --dir"
        )
    path = folder / f"Pulumi.{request.stack}.yaml"
    content = stack_file(found.checkpoint, found.record)
    if path.exists() and path.read_text(encoding="utf-8") != content and not force:
        raise RefusedError(
            f"{path} exists and differs from what runs",
            reason="FileDiffers",
            hint=f"see the difference: pulumi preview --stack {request.stack} --diff; or overwrite it with --force",
        )
    _write(path, content)
    for line in _environment(session.settings):
        typer.echo(line)
    note(f"wrote {path}; with the environment above: pulumi preview --stack {request.stack} --diff")


def _write(path: Path, content: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(content, encoding="utf-8")
    beside.replace(path)


def _environment(settings: Settings) -> Iterator[str]:
    """Shell lines with which plain `pulumi` finds what the engine finds; no secret is among them."""
    from provisioner import toolchain
    from provisioner.engine.environment import PROVIDER_OPTIONS, backend_url, kubeconfig_variable
    from provisioner.settings import state_home

    variables = {
        **toolchain.environment(),
        **PROVIDER_OPTIONS,
        "PULUMI_BACKEND_URL": backend_url(settings.backend),
    }
    if settings.passphrase is None:
        variables["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(settings.passphrase_file.absolute())
    contexts = state_home() / "contexts"
    contexts.mkdir(parents=True, exist_ok=True, mode=0o700)
    kubeconfig = kubeconfig_variable(settings, os.environ, contexts)
    if kubeconfig is not None:
        variables["KUBECONFIG"] = kubeconfig
    for key, value in variables.items():
        yield f"export {key}={shlex.quote(value)}"
    if settings.passphrase is not None:
        yield 'export PULUMI_CONFIG_PASSPHRASE="$PROVISIONER_PASSPHRASE"'


def forget(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also if something is left of it, or the cluster cannot be asked.")
    ] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
) -> None:
    """Drop the record of a service whose cluster is gone.

    Nothing is deleted from any cluster.
    """
    from provisioner.cli.session import Session
    from provisioner.errors import RefusedError, TransientError

    session = Session(namespace, project, domain)
    found = session.find(name)
    stack, service = found.identity.stack, found.identity.service
    if not force:
        try:
            left = session.cluster.remaining(found.identity)
        except TransientError as error:
            raise RefusedError(
                f"what is left of {service} cannot be known: {error.message}",
                reason="ClusterUnknown",
                hint="if this cluster is gone for good, repeat with --force",
            ) from error
        if left:
            raise RefusedError(
                f"service {service} is still there: {', '.join(left)}",
                reason="StillThere",
                hint=f"delete it: `provisioner delete {name}`; with --force only its record goes",
            )
    session.engine.stack(stack).forget()
    note(f"stack {stack} is forgotten")
