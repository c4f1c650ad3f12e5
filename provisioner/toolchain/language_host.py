"""The engine's Python language host, where no official one came with the CLI.

`pulumi` starts a language host as a process, reads the port of its gRPC
service from its first line of output, and calls Run with the address of its
own service. The SDK has that service for inline programs (LanguageServer);
this module lets it run a project's program from its files.

A first Run happens in this process, which saves starting an interpreter and
loading the SDK again. A later one, or one that asks for a virtual
environment other than ours, gets a fresh process, since modules that a
program has imported would not run a second time.

Started by its path with `python -P`, and so independent of the rest of this
package: any interpreter with the SDK will do.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from concurrent import futures
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from pulumi.automation._server import LanguageServer
from pulumi.errors import RunError
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

_PARENT_POLL_S = 1.0


def program_path(info: language_pb2.ProgramInfo) -> Path:
    """The file or folder that holds the program.

    Args:
        info: What the engine read from Pulumi.yaml; its entry point is `.`
            or a file, relative to the program's folder.
    """
    return Path(info.program_directory) / (info.entry_point or ".")


def interpreter(info: language_pb2.ProgramInfo) -> Path | None:
    """The interpreter of the virtual environment that a project asks for.

    Args:
        info: What the engine read from Pulumi.yaml; `virtualenv` of its
            runtime's options is relative to the project's folder.

    Returns:
        The interpreter, or None when the project asks for none.
    """
    options: dict[str, Any] = MessageToDict(info.options)
    wanted = str(options.get("virtualenv") or "")
    return Path(info.root_directory) / wanted / "bin" / "python" if wanted else None


def is_ours(python: Path) -> bool:
    """Whether an interpreter is of the environment that this process runs in."""
    return python.parent.parent.resolve() == Path(sys.prefix).resolve()


class Host(LanguageServer):
    """Answers the engine.

    Args:
        engine: Address of the engine's own service.
    """

    def __init__(self, engine: str) -> None:
        super().__init__(lambda: None)
        self._engine = engine
        self._used = False
        self._claim = threading.Lock()

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        """Run a project's program."""
        if request.attach_debugger:
            return language_pb2.RunResponse(error="this language host attaches no debugger")
        python = interpreter(request.info)
        if python is not None and not python.exists():
            return language_pb2.RunResponse(
                error=f"the virtual environment of Pulumi.yaml has no {python}; make it, or name another"
            )
        with self._claim:
            fresh, self._used = self._used or (python is not None and not is_ours(python)), True
        if fresh:
            return _run_apart(python or Path(sys.executable), self._engine, request)
        # The SDK's server takes the engine's address from the first argument.
        del request.args[:]
        request.args.append(self._engine)
        self.program = self._program(request)
        response: language_pb2.RunResponse = super().Run(request, context)  # type: ignore[no-untyped-call]
        # The SDK has reported the error to the engine already: bail, so that it is not shown twice.
        return language_pb2.RunResponse(bail=True) if response.error else response

    def _program(self, request: language_pb2.RunRequest) -> Any:
        path = program_path(request.info)
        os.chdir(request.pwd or request.info.program_directory)
        sys.path.insert(0, str(path if path.is_dir() else path.parent))
        return lambda: _run_program(path)

    def GetPluginInfo(self, _request: Any, _context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """The version: that of the SDK, which does the work."""
        return plugin_pb2.PluginInfo(version=metadata.version("pulumi"))

    def GetProgramDependencies(
        self, _request: language_pb2.GetProgramDependenciesRequest, _context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """The packages installed beside the SDK, which `pulumi about` shows."""
        found = {item.name: item.version for item in metadata.distributions()}
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[language_pb2.DependencyInfo(name=name, version=found[name]) for name in sorted(found)]
        )

    def Cancel(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        """Stop: the engine ends this process next."""
        from google.protobuf.empty_pb2 import Empty

        return Empty()


def _run_program(path: Path) -> None:
    try:
        runpy.run_path(str(path), run_name="__main__")
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a user's program raises
        # Only the program's own part of the traceback: it ends with the frames that are not of this file or runpy.
        whole = traceback.TracebackException.from_exception(error)
        inside = [frame for frame in whole.stack if frame.filename not in (__file__, runpy.__file__)]
        own = [frame for frame in inside if not frame.filename.startswith("<frozen ")]
        whole.stack = traceback.StackSummary.from_list(own)
        raise RunError(f"the program failed:\n{''.join(whole.format())}") from None


def _run_apart(python: Path, engine: str, request: language_pb2.RunRequest) -> language_pb2.RunResponse:
    """Run a program in a process of its own, by another of these hosts."""
    with subprocess.Popen(
        [str(python), "-P", __file__, engine], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        port = process.stdout.readline().strip() if process.stdout is not None else ""
        relay = threading.Thread(target=_relay, args=(process,), daemon=True)
        relay.start()
        try:
            if not port.isdigit():
                return language_pb2.RunResponse(error=f"{python} cannot run the program: has it the Pulumi SDK?")
            # gRPC would take the way through $https_proxy even to this very machine.
            with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
                response: language_pb2.RunResponse = language_pb2_grpc.LanguageRuntimeStub(channel).Run(request)
                return response
        except grpc.RpcError as error:
            return language_pb2.RunResponse(error=f"the program's process ended: {error.details()}")
        finally:
            process.terminate()
            relay.join()


def _relay(process: subprocess.Popen[str]) -> None:
    # What the program prints, the engine shows.
    for line in process.stdout or ():
        print(line, end="", flush=True)


def _stop_when_orphaned(parent: int, stopped: threading.Event) -> None:
    # An engine that was killed cannot end its plugins.
    while not stopped.wait(_PARENT_POLL_S):
        if os.getppid() != parent:
            stopped.set()


def main(arguments: list[str]) -> int:
    """Serve until the engine ends this process.

    Args:
        arguments: The engine's options, and its address as the last one.
    """
    if not arguments:
        print("usage: pulumi-language-python [options] ENGINE_ADDRESS", file=sys.stderr)
        return 2
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(arguments[-1]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    _stop_when_orphaned(os.getppid(), stopped)
    server.stop(grace=0)
    # A program that still runs must not hold the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
