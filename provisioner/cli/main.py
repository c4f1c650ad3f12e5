"""`provisioner`: the entry point and the groups of verbs."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer
from typer.exceptions import TyperException

from provisioner import __version__
from provisioner.cli.agents import app as agents
from provisioner.cli.apply import apply
from provisioner.cli.checkout import checkout, forget
from provisioner.cli.delete import delete
from provisioner.cli.demo import demo
from provisioner.cli.doctor import doctor
from provisioner.cli.drift import drift
from provisioner.cli.gateway import gateway
from provisioner.cli.gc import app as gc
from provisioner.cli.groups import GroupedHelp
from provisioner.cli.logs import logs
from provisioner.cli.output import Exit, exit_code, print_error
from provisioner.cli.preview import preview
from provisioner.cli.sandbox import app as sandbox
from provisioner.cli.schema import schema
from provisioner.cli.serve import serve
from provisioner.cli.services import events, list_services, outputs
from provisioner.cli.settings import settings as show_settings
from provisioner.cli.status import status
from provisioner.cli.toolchain import app as toolchain
from provisioner.cli.update import history, rollback, scale
from provisioner.errors import ProvisionerError

EPILOG = "Exit codes: 0 done, 1 failed, 2 usage, 3 not ready yet, 4 refused, 130 interrupted."

app = typer.Typer(
    name="provisioner",
    cls=GroupedHelp,
    help="Ephemeral data services on Kubernetes: each one a Pulumi stack, driven from Flyte.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"provisioner {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Options that stand before the verb."""


_SERVICES = "Services"
_SERVE = "Serve Flyte"
_LOCAL = "Local cluster and tools"

app.command("apply", rich_help_panel=_SERVICES)(apply)
app.command("preview", rich_help_panel=_SERVICES)(preview)
app.command("list", rich_help_panel=_SERVICES)(list_services)
app.command("status", rich_help_panel=_SERVICES)(status)
app.command("outputs", rich_help_panel=_SERVICES)(outputs)
app.command("logs", rich_help_panel=_SERVICES)(logs)
app.command("events", rich_help_panel=_SERVICES)(events)
app.command("delete", rich_help_panel=_SERVICES)(delete)
app.command("scale", rich_help_panel=_SERVICES)(scale)
app.command("history", rich_help_panel=_SERVICES)(history)
app.command("rollback", rich_help_panel=_SERVICES)(rollback)
app.command("drift", rich_help_panel=_SERVICES)(drift)
app.command("checkout", rich_help_panel=_SERVICES)(checkout)
app.command("forget", rich_help_panel=_SERVICES)(forget)
app.command("schema", rich_help_panel=_SERVICES)(schema)
app.command("serve", rich_help_panel=_SERVE)(serve)
app.command("gateway", rich_help_panel=_SERVE)(gateway)
app.add_typer(agents, name="agents", rich_help_panel=_SERVE)
app.add_typer(gc, name="gc", rich_help_panel=_SERVE)
app.command("demo", rich_help_panel=_LOCAL)(demo)
app.add_typer(sandbox, name="sandbox", rich_help_panel=_LOCAL)
app.add_typer(toolchain, name="toolchain", rich_help_panel=_LOCAL)
app.command("doctor", rich_help_panel=_LOCAL)(doctor)
app.command("settings", rich_help_panel=_LOCAL)(show_settings)


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: The words after `provisioner`; the process's own by default.

    Returns:
        One of `provisioner.cli.output.Exit`.
    """
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    try:
        result = app(words, standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        print("error: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except TyperException as error:
        if str(error).startswith("Usage:"):  # a group of verbs without a verb
            print(error, file=sys.stderr)
            return Exit.USAGE
        print(f"error: {error}", file=sys.stderr)
        print("hint: see `provisioner --help`, or --help after the verb", file=sys.stderr)
        return Exit.USAGE
    except ProvisionerError as error:
        if debug:
            traceback.print_exc()
        print_error(error)
        return exit_code(error)
    except Exception as error:  # noqa: BLE001 - the last resort: a line for people, the traceback on demand
        if debug:
            traceback.print_exc()
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: this is a fault of the program; run again with --debug for the traceback", file=sys.stderr)
        return Exit.FAILED
    return result if isinstance(result, int) else Exit.DONE


def run() -> None:
    """Console script: exit with the code of `main`."""
    sys.exit(main())
