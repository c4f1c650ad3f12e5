"""`provisioner sandbox`: a real Kubernetes on this machine, and images for it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from provisioner.cli.groups import GroupedHelp
from provisioner.cli.output import Exit, Format, FormatOption, note, print_result, stderr

if TYPE_CHECKING:
    from provisioner.sandbox import SandboxStatus

app = typer.Typer(
    cls=GroupedHelp,
    help="A real Kubernetes on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
image = typer.Typer(
    cls=GroupedHelp, help="Build images without a registry.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(image, name="image")

NameOption = Annotated[str, typer.Option("--name", help="Which sandbox; any number can run at once.")]
_DEFAULT = "default"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show what is being done: one live line on a terminal, else a line for each."""
    console = stderr()
    if not console.is_terminal:
        yield note
        return
    with console.status("looking") as status:

        def show(line: str) -> None:
            status.update(Text(line))
            console.print(Text(line, style="dim"))

        yield show


def _age(seconds: int | None) -> str | None:
    """A duration as kubectl writes it: the two largest units."""
    if seconds is None:
        return None
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{left}s" if minutes else f"{left}s"


@app.command("up")
def up(
    name: NameOption = _DEFAULT,
    hollow: Annotated[
        int | None,
        typer.Option("--hollow", metavar="N", help="How many hollow nodes, on which pods only seem to run."),
    ] = None,
    node: Annotated[
        bool | None,
        typer.Option("--node/--no-node", help="With or without a real node; with one where the machine allows."),
    ] = None,
    additions: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="What shall run beside it, and goes on to: training-operator."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="What shall run beside it no longer.")
    ] = None,
) -> None:
    """Start a sandbox, repair it, or change what it consists of."""
    from provisioner.sandbox import Sandbox

    started = time.monotonic()
    sandbox = Sandbox(name)
    with _progress() as progress:
        status = sandbox.up(
            node=node, hollow=hollow, additions=additions or (), without=without or (), progress=progress
        )
    nodes = sum(item.ready for item in status.nodes)
    note(f"sandbox {name} is ready ({nodes} node{'' if nodes == 1 else 's'}, {time.monotonic() - started:.1f} s)")
    note(f"export KUBECONFIG={shlex.quote(str(sandbox.kubeconfig))}")


@app.command("down")
def down(name: NameOption = _DEFAULT) -> None:
    """End all that a sandbox has started; delete its state."""
    from provisioner.sandbox import Sandbox

    with _progress() as progress:
        existed = Sandbox(name).down(progress=progress)
    note(f"sandbox {name} is gone" if existed else f"there is no sandbox {name}")


@app.command("status")
def status(name: NameOption = _DEFAULT, output: FormatOption = Format.TABLE) -> int:
    """Show each process and node; exit code 3 when one is not ready."""
    from provisioner.sandbox import Sandbox

    found = Sandbox(name).status()
    if output is not Format.TABLE:
        print_result(_document(found), output)
        return Exit.DONE if found.ready else Exit.NOT_READY
    rows = [
        {"process": item.name, "state": item.state, "pid": item.pid, "uptime": _age(item.uptime), "port": item.port}
        for item in found.processes
    ]
    print_result(rows, output)
    if found.nodes:
        typer.echo()
        kinds = {True: "hollow", False: "real"}
        print_result(
            [
                {"node": item.name, "kind": kinds[item.hollow], "state": "ready" if item.ready else item.message}
                for item in found.nodes
            ],
            output,
        )
    if found.processes:
        note(f"logs: {found.processes[0].log.parent}")
    if not found.ready:
        note(f"sandbox {name} is not ready: {found.message}")
        note(f"hint: repair it with `provisioner sandbox up --name {name}`")
        return Exit.NOT_READY
    return Exit.DONE


def _document(status: SandboxStatus) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(status)


@app.command("list")
def list_all(output: FormatOption = Format.TABLE) -> None:
    """Show every sandbox of this user."""
    from provisioner.sandbox import list_sandboxes

    rows = [
        {
            "name": item.name,
            "ready": item.ready,
            "nodes": len(item.nodes),
            "kubeconfig": str(item.kubeconfig),
            "message": item.message,
        }
        for item in list_sandboxes()
    ]
    columns = {key: key for key in ("name", "ready", "nodes", "message")}
    print_result(rows, output, columns=columns, empty="there is no sandbox; start one: provisioner sandbox up")


@app.command("kubeconfig")
def kubeconfig(
    name: NameOption = _DEFAULT,
    export: Annotated[bool, typer.Option("--export", help='Print a shell line instead, for eval "$(...)".')] = False,
) -> None:
    """Print the path of the sandbox's kubeconfig."""
    from provisioner.sandbox import Sandbox

    path = Sandbox(name).existing_kubeconfig()
    typer.echo(f"export KUBECONFIG={shlex.quote(str(path))}" if export else str(path))


@app.command("load-image")
def load_image(
    file: Annotated[
        Path, typer.Argument(help="A Docker archive, or a tar of an OCI image layout.", show_default=False)
    ],
    name: NameOption = _DEFAULT,
) -> None:
    """Import an image archive, and print the names of its images."""
    from provisioner.sandbox import Sandbox

    for image_name in Sandbox(name).load_image(file):
        typer.echo(image_name)


@image.command("python")
def image_python(
    packages: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="A package of this environment; may be given again."),
    ] = None,
    image_name: Annotated[
        str, typer.Option("--name", metavar="IMAGE", help="The image's name.")
    ] = "localhost/python:sandbox",
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="LOCAL_PATH:IMAGE_PATH", help="A file or folder to put in; may be given again."),
    ] = None,
    load: Annotated[bool, typer.Option("--load", help="Load it into the sandbox at once.")] = False,
    sandbox: Annotated[str, typer.Option("--sandbox", metavar="NAME", help="The sandbox of --load.")] = _DEFAULT,
) -> None:
    """Build an image from this Python and its packages, and print its file (with --load, its name)."""
    from provisioner.sandbox import Sandbox
    from provisioner.sandbox.images.python import Addition, build_python_image

    additions = [Addition.parse(text) for text in add or []]
    with _progress() as progress:
        archive = build_python_image(packages or [], name=image_name, add=additions, progress=progress)
        if not load:
            typer.echo(str(archive))
            return
        progress(f"loading {archive.name} into sandbox {sandbox}")
        names = Sandbox(sandbox).load_image(archive)
    for loaded in names:
        typer.echo(loaded)
