"""Provide every binary that is missing or broken, one after another.

The order of sources is the order of their cost: what is on the machine, what
is in the cache, a folder given by the user, an official installer, a build.
Each binary is finished and recorded before the next is begun, so that
whatever interrupts the installation, the next one continues after it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from provisioner.errors import PermanentError
from provisioner.toolchain import debian, golang, launcher, official, pins, probe, process, record, work
from provisioner.toolchain.lock import exclusive
from provisioner.toolchain.pins import DEFAULT_GROUPS, Group, Kit, Pin
from provisioner.toolchain.progress import Progress, Step
from provisioner.toolchain.state import Condition, KitPlan, Plan, State, decide, of_record, space_needed_gb, usable
from provisioner.toolchain.survey import survey
from provisioner.toolchain.work import Work

_GB = 1e9


@dataclass
class _Installation:
    working: Work
    progress: Progress
    count: int
    official: bool
    folder: Path | None
    begun: int = 0
    compiler: golang.Compiler | None = None
    failures: list[PermanentError] = field(default_factory=list)

    def step(self, name: str, version: str, action: str, *, weight: int = 1) -> Step:
        """Begin the next binary (or the next `weight` of them)."""
        step = Step(name, version, self.begun + 1, self.count, action)
        self.begun += weight
        self.progress.begin(step)
        return step

    def finished(self, step: Step, pin: Pin) -> None:
        known = record.read(pin)
        self.progress.done(step, of_record(known).size if known is not None else 0)


def install(
    groups: Iterable[Group] = DEFAULT_GROUPS,
    *,
    official: bool = True,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> tuple[State, ...]:
    """Provide all binaries of some groups.

    Args:
        groups: The groups; by default engine and sandbox.
        official: Whether official installers may be tried before a build.
        folder: Take binaries from this folder instead of installing or
            building them; each must tell the pinned version.
        progress: Told what is going on.

    Returns:
        The state of every binary, all of them usable.

    Raises:
        PermanentError: Some cannot be provided. Those that can be are; a
            later call continues.
    """
    wanted = pins.load().select(groups)
    shown = progress or Progress()
    states = survey(wanted, thorough=False)
    home = work.toolchain_home()
    if _complete(states):
        _tidy(home, shown)
        return states
    on_wait = _waiting(shown)
    try:
        with exclusive(home / "lock", on_wait) as lock:
            # Looked at again: another installer may have done it all in the meantime.
            _provide(
                survey(wanted, thorough=True),
                Work(lock, shown.tick, shown.note),
                shown,
                official=official,
                folder=folder,
            )
    except KeyboardInterrupt:
        kept = [str(folder) for folder in work.leftovers()]
        shown.note("interrupted; the same command continues" + (f" with what is in {kept[0]}" if kept else ""))
        raise
    except OSError as error:
        raise PermanentError(
            f"cannot write {error.filename or home}: {error.strerror}",
            reason="CacheUnwritable",
            hint="check the free space and who owns the folder, or set XDG_CACHE_HOME",
        ) from error
    return survey(wanted, thorough=False)


def _waiting(shown: Progress) -> Callable[[str], None]:
    return lambda holder: shown.note(f"another installation is under way ({holder}): waiting for it")


def _tidy(home: Path, shown: Progress) -> None:
    # Only an installation that was killed while it cleaned up leaves something; one that still runs is left alone.
    if work.leftovers():
        with suppress(BlockingIOError), exclusive(home / "lock", None) as lock:
            Work(lock, shown.tick, shown.note).finish()


def _complete(states: Sequence[State]) -> bool:
    return all(state.condition is Condition.OK and state.recorded for state in states)


def _provide(states: Sequence[State], working: Work, shown: Progress, *, official: bool, folder: Path | None) -> None:
    plan = decide(states)
    for state in plan.adopt:
        if state.binary is not None:
            _record_found(state.pin, state.binary.path, state.binary.version, state.binary.source)
    for state in states:
        if state.condition in (Condition.BROKEN, Condition.UNSUITABLE):
            shown.note(f"{state.pin.name}: {state.detail}")
    if plan.count:
        working.prepare()
        _carry_out(plan, _Installation(working, shown, plan.count, official, folder))


def _carry_out(plan: Plan, run: _Installation) -> None:
    if plan.packages:
        _packages(run, plan.packages, plan.package_pins)
    for index, item in enumerate(plan.kits):
        if run.folder is not None:
            _from_folder(run, item, run.folder)
        else:
            _from_source(run, item, plan.kits[index:])
    for pin in plan.launchers:
        # The official installer of the CLI brings one.
        if not usable(pin, record.read(pin)) or not _is_intact(pin):
            step = run.step(pin.name, "", "writing")
            launcher.write(pin, run.working)
            run.finished(step, pin)
    if run.compiler is not None:
        run.progress.begin(Step("the caches of the build", "", plan.count, plan.count, "removing"))
    run.working.finish()
    if run.failures:
        raise _together(run.failures)


def _is_intact(pin: Pin) -> bool:
    known = record.read(pin)
    return known is not None and not record.intact(known, thorough=True)


def _record_found(pin: Pin, path: Path, version: str, source: record.Source) -> None:
    found = record.Record(
        name=pin.name, version=version, source=source, origin=f"found at {path}", files=(record.describe(path),)
    )
    record.write(pin, found)


def _packages(run: _Installation, packages: Sequence[pins.Package], wanted: Sequence[Pin]) -> None:
    names = " ".join(package.name for package in packages)
    step = run.step(names, "", "installing the Debian packages", weight=len(wanted))
    try:
        found = debian.install(packages, wanted, run.working)
    except PermanentError as error:
        # Told at the end: everything else is worth having without them.
        run.failures.append(error)
        return
    for pin, candidate in found:
        _record_found(pin, candidate.path, candidate.version, candidate.source)
    run.progress.done(step, sum(candidate.path.stat().st_size for _, candidate in found))


def _from_folder(run: _Installation, item: KitPlan, folder: Path) -> None:
    for pin in item.pins:
        step = run.step(pin.name, item.kit.version, "copying")
        try:
            _copy(run.working, item.kit, pin, folder)
        except PermanentError as error:
            run.failures.append(error)
        else:
            run.finished(step, pin)


def _copy(working: Work, kit: Kit, pin: Pin, folder: Path) -> None:
    found = sorted(path for path in folder.rglob(pin.name) if path.is_file())
    if not found:
        raise PermanentError(
            f"{pin.name} is not in {folder}", reason="ToolMissing", hint="put it there, or install without --from"
        )
    checked = [probe.check(path, pin) for path in found]
    chosen = next((candidate for candidate in checked if not candidate.fault), None)
    if chosen is None:
        raise PermanentError(checked[0].fault, reason="ToolUnusable")
    staged = working.stage / pin.name
    shutil.copyfile(chosen.path, staged)
    beside = {}
    for name in kit.data.values():
        data = chosen.path.parent / name
        if not data.is_dir():
            raise PermanentError(f"{pin.name} needs the folder {name} beside it in {folder}", reason="ToolUnusable")
        for file in sorted(path for path in data.rglob("*") if path.is_file()):
            place = PurePosixPath(name) / file.relative_to(data).as_posix()
            copy = working.stage / "data" / place
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            beside[place] = copy
    work.put_in_place(pin, staged, f"copied from {chosen.path}", beside=beside)


def _from_source(run: _Installation, item: KitPlan, remaining: Sequence[KitPlan]) -> None:
    kit = item.kit
    if run.official and kit.official:
        step = run.step(kit.name, kit.version, "trying the official installer", weight=0)
        if official.provide(kit, item.pins, _pulumi(), run.working):
            run.begun += len(item.pins)
            run.finished(step, item.pins[0])
            return
    if run.compiler is None:
        run.compiler = golang.find_compiler(pins.load().go, run.working)
    for pin in item.pins:
        _require_space(run.working, remaining)
        step = run.step(pin.name, kit.version, "building")
        golang.build(kit, pin, run.compiler, pins.load().go.minimum, run.working)
        run.finished(step, pin)


def _pulumi() -> Path | None:
    state = survey([pins.load().find("pulumi")], thorough=False)[0]
    return state.binary.path if state.binary is not None else None


def _require_space(working: Work, remaining: Sequence[KitPlan]) -> None:
    needed = space_needed_gb(remaining)
    free = shutil.disk_usage(working.build).free / _GB
    if free >= needed:
        return
    # What an earlier try has already downloaded and compiled is not needed again.
    free += process.bytes_below(working.build) / _GB
    if free < needed:
        raise PermanentError(
            f"building {', '.join(item.kit.name for item in remaining)} needs {needed} GB for a while, "
            f"and {free:.1f} GB are free at {working.build}",
            reason="DiskFull",
            hint="free some space, or set XDG_CACHE_HOME to a folder on a larger disk",
        )


def _together(failures: Sequence[PermanentError]) -> PermanentError:
    if len(failures) == 1:
        return failures[0]
    return PermanentError(
        "; ".join(failure.message for failure in failures),
        reason=failures[0].reason,
        hint="; ".join(dict.fromkeys(failure.hint for failure in failures if failure.hint)),
    )
