"""Read services from the files that a verb was given."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from provisioner.errors import Problem, ProvisionerError, SpecError, UsageError
from provisioner.spec.documents import ServiceDocument, parse_documents

_SUFFIXES = (".yaml", ".yml", ".json")


def read_documents(paths: Sequence[Path]) -> list[ServiceDocument]:
    """All services of some files.

    Args:
        paths: Files, folders of files, or `-` for stdin.

    Raises:
        UsageError: A file cannot be read, or a folder has none.
        SpecError: With the problems of all files.
    """
    documents: list[ServiceDocument] = []
    errors: list[SpecError] = []
    for source, text in _texts(paths):
        try:
            documents += parse_documents(text, source=source)
        except SpecError as error:
            errors.append(error)
    if errors:
        raise _together(errors)
    return documents


def _together(errors: Sequence[SpecError]) -> ProvisionerError:
    if len(errors) == 1:
        return errors[0]
    problems = [
        Problem(f"{error.source}: {problem.path}", problem.value, problem.accepted)
        for error in errors
        for problem in error.problems
    ]
    return SpecError(problems, source=f"what {len(errors)} files hold")


def _texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if str(path) == "-":
            yield "stdin", sys.stdin.read()
            continue
        for file in _files(path):
            try:
                yield str(file), file.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(f"{file} is not a text in UTF-8: {error.reason}") from error
            except OSError as error:
                raise UsageError(f"{file} cannot be read: {error.strerror}") from error


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not found:
        raise UsageError(f"folder {path} has no file that ends in {', '.join(_SUFFIXES)}")
    return found
