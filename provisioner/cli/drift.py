"""`provisioner drift`: what others changed, and on demand its correction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provisioner.cli.options import (
    DomainOption,
    NameArgument,
    NamespaceOption,
    ProjectOption,
    TimeoutOption,
    WaitOption,
)
from provisioner.cli.output import Exit, Format, FormatOption, note, print_result

if TYPE_CHECKING:
    from provisioner.control.drift import Drifted

_LONGEST_VALUE = 60


def drift(
    name: NameArgument,
    correct: Annotated[bool, typer.Option("--correct", help="Put right what was changed.")] = False,
    namespace: NamespaceOption = None,
    project: ProjectOption = None,
    domain: DomainOption = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Show what others changed, field by field.

    Exit code 0: nothing, or only what the specification leaves to them. 3: something.
    """
    from provisioner.cli.apply import carry_out
    from provisioner.cli.session import Session

    session = Session(namespace, project, domain)
    found = session.find(name)
    request = found.request()
    differences = session.operations.drift(found.checkpoint, request.spec)
    rows = [_row(item) for item in differences]
    if output is Format.TABLE:
        shown = [{**row, "applied": _value(row["applied"]), "found": _value(row["found"])} for row in rows]
        columns = {"object": "object", "field": "path", "applied": "applied", "found": "found", "by": "manager"}
        print_result(shown, output, columns=columns, empty="no drift")
    else:
        print_result(rows, output)
    left = [item for item in differences if not item.ignored]
    if not left:
        return Exit.DONE
    if not correct:
        note(f"hint: `provisioner drift {name} --correct` puts it right")
        return Exit.NOT_READY
    code = carry_out(session, [request], wait=wait, timeout=timeout, output=output, repair=True)
    # An object that was made anew has another uid, and is right all the same.
    kept = [item for item in session.operations.drift(found.checkpoint, request.spec) if item.path != "metadata.uid"]
    for item in kept:
        if not item.ignored:
            note(
                f"note: left as it is, since the specification says nothing of it: {item.kind}/{item.name} {item.path}"
            )
    return code


def _row(item: Drifted) -> dict[str, Any]:
    return {
        "object": f"{item.kind}/{item.name}",
        "path": item.path or "(the object itself)",
        "applied": item.applied,
        "found": item.found,
        "manager": "left to others" if item.ignored else item.manager or None,
        "ignored": item.ignored,
    }


def _value(value: Any) -> str:
    if value is None:
        return "<none>"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
