"""`provisioner doctor`: whether everything is there that the provisioner needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from provisioner.cli.output import WIDTH, Exit, Format, FormatOption, note, print_result, print_table, stderr

if TYPE_CHECKING:
    from provisioner.control.doctor import Check


def doctor(
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Look at the permissions there. Repeatable.", show_default=False),
    ] = None,
    gc: Annotated[bool, typer.Option("--gc", help="Look at what the janitor needs as well.")] = False,
    output: FormatOption = Format.TABLE,
) -> int:
    """Check engine, backend, cluster and permissions.

    Exit code 0: nothing failed. 1: something did; what to do stands beside it.
    """
    from provisioner import logs
    from provisioner.control.doctor import Result, examine
    from provisioner.janitor.doctor import examine as examine_janitor
    from provisioner.settings import load

    settings = load()
    logs.configure(settings, level="error")
    findings = examine(settings, namespace or [settings.namespace])
    checks: list[Check] = []
    with stderr().status("looking", spinner="line") as shown:
        for check in chain(findings, examine_janitor(settings) if gc else ()):
            shown.update(Text(f"{check.name}: {check.result.value}"))
            checks.append(check)
    if output is Format.TABLE:
        _print_table(checks)
        count = Counter(check.result.value for check in checks)
        note(", ".join(f"{count[result.value]} {result.value}" for result in Result if count[result.value]))
    else:
        rows = [
            {"check": check.name, "result": check.result.value, "detail": check.detail, "fix": check.fix or None}
            for check in checks
        ]
        print_result(rows, output)
    return Exit.FAILED if any(check.result is Result.FAIL for check in checks) else Exit.DONE


def _print_table(checks: Sequence[Check]) -> None:
    """Detail and fix wrapped in a column of their own, or beneath where a long path does not fit into it."""
    width = WIDTH - max(len(check.name) for check in checks) - len("result") - 2 * len("   ")
    rows: list[tuple[str, str, str]] = []
    beneath: list[str] = []
    for check in checks:
        told = [check.detail, *([f"fix: {check.fix}"] if check.fix else [])]
        lines = [line for text in told for line in _wrapped(text, width)]
        if max(map(len, lines)) > width:
            lines = [line for text in told for line in _wrapped(text, WIDTH - 4)]
            rows.append((check.name, check.result.value, ""))
            beneath.append("\n    ".join(lines))
            continue
        for number, line in enumerate(lines):
            rows.append(("", "", line) if number else (check.name, check.result.value, line))
            beneath.append("")
    print_table(("check", "result", "detail"), rows, beneath=beneath)


def _wrapped(text: str, width: int) -> list[str]:
    # A path or a command is not broken: it is to be copied.
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)
