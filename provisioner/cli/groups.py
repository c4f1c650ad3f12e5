"""Help that lists the verbs by what they are for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class GroupedHelp(TyperGroup):
    """A group of commands whose help has one section per `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, section by section, in the order of their registration."""
        sections: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                sections.setdefault(panel if isinstance(panel, str) else "Commands", []).append((name, command))
        longest = max((len(name) for commands in sections.values() for name, _ in commands), default=0)
        for title, commands in sections.items():
            with formatter.section(title):
                width = formatter.width - 6 - longest
                formatter.write_dl([(name.ljust(longest), item.get_short_help_str(width)) for name, item in commands])
