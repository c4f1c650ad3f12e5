"""`provisioner doctor`: whether everything is there that the provisioner needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from provisioner.cli.output import Exit, Format, FormatOption, print_result, stderr

if TYPE_CHECKING:
    from provisioner.control.doctor import Check


def doctor(
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Look at the permissions there. Repeatable.", show_default=False),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Check engine, backend, cluster and permissions.

    Exit code 0: nothing failed. 1: something did; what to do stands beside it.
    """
    from provisioner.cli.session import Session
    from provisioner.control.doctor import Result, examine

    session = Session()
    checks: list[Check] = []
    console = stderr()
    with console.status("looking", spinner="line") as shown:
        for check in examine(session.settings, namespace or [session.settings.namespace]):
            shown.update(Text(f"{check.name}: {check.result.value}"))
            checks.append(check)
    rows = [
        {"check": check.name, "result": check.result.value, "detail": check.detail, "fix": check.fix or None}
        for check in checks
    ]
    print_result(rows, output, columns={key: key for key in ("check", "result", "detail")})
    if output is Format.TABLE:
        for check in checks:
            if check.fix:
                console.print(Text(f"fix: {check.name}: {check.fix}"), soft_wrap=True)
    return Exit.FAILED if any(check.result is Result.FAIL for check in checks) else Exit.DONE
