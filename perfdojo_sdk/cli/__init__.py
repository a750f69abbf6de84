"""The command line: a table of commands, each a module that is imported only when it is asked for.

``perfdojo-sdk --help`` prints this table and loads nothing else. Results go to stdout, progress and
errors to stderr. Exit codes: 0 ok, 1 user error, 2 usage, 3 plugin or target unavailable,
4 verification failed, 5 nothing found, 6 a plugin's code failed, 130 interrupted, 143 terminated (asking
again continues).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from perfdojo_sdk.cli.signals import INTERRUPTED, TERMINATED, leaving_at_once, unwinding

if TYPE_CHECKING:
    from perfdojo_sdk.core.errors import DojoError

#: Command -> its line in the overview. The code is ``command`` in the module of the same name.
COMMANDS: Mapping[str, str] = {
    "build-library": "build, verify and measure a library of kernels for a target",
    "optimize": "build a model: lower it to kernels, build, verify and measure each, package all",
    "kernelbench": "run a folder of PyTorch modules in the form of KernelBench",
    "cache": "show or clear the cache of verified kernels",
    "tune": "search for the fastest program of a kernel, and keep everything that was tried",
    "train": "train an agent on kernels of one or more targets, for `tune --search perfllm --agent FILE`",
    "agents": "say what a trained agent is and how it came about",
    "bench": "time the kernels of a library again, stored against now, or time one game",
    "verify": "check a game or kernel by the three legs of verification",
    "show": "print a program, a kernel or a saved game",
    "moves": "list the legal moves, or all of them with the reason for refusing",
    "apply": "play a move and save the game",
    "undo": "take one move out of a saved game and keep the later ones",
    "redo": "put back what `undo` took out of a saved game",
    "insert": "play a move in the middle of a saved game and keep the later ones",
    "replay": "play a saved game again from its initial program",
    "explain-plan": "say what the target's expert decides for a kernel, and why",
    "explain-time": "split a kernel's time into parts",
    "simulate": "run a program of a target's own assembly or machine code on its simulator",
    "explain": "say why a move is or is not legal, or what an error code means",
    "reproduce": "list the experiments, or run one",
    "db": "show, export, import, merge and prune the records of searches and builds",
    "cost": "say what searches have cost, and what a library would cost by that",
    "cluster": "start a Ray cluster, join one, show what it has",
    "targets": "list the targets, and which of them this machine can run",
    "kernels": "list the kernels and their parameters",
    "transformations": "list the transformations, or describe one",
    "plugins": "list, show, check and start plugins, and say what this machine lacks for them",
}

OK, USAGE = 0, 2


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    with leaving_at_once():
        _open_streams()
        # Pydantic would read the declarations of every installed package, and fail if one is no UTF-8 text.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        try:
            try:
                _command(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader of the output has closed it
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            sys.exit(1)


def _open_streams() -> None:
    """Open /dev/null for standard streams that the process was started without.

    Otherwise the next opened file would get the number of such a stream, and output would go into that file.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _command(arguments: Sequence[str] | None) -> NoReturn:
    words, options = _split(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        _say(overview())
        sys.exit(OK if words else USAGE)
    if words[0] == "--version":
        from perfdojo_sdk import __version__

        _say(f"perfdojo-sdk {__version__}")
        sys.exit(OK)
    if words[0] not in COMMANDS:
        what = unknown(words[0])
        print(f"perfdojo-sdk: {what}", file=sys.stderr)
        _wrong_usage(what, "--json" in words)
    _guarded(words, options)


def _say(text: str) -> None:
    """Print at once; a message and its exit code if the system refuses, such as on a full disk."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as refused:
        from perfdojo_sdk.cli.console import report

        error = _system_error(refused)
        report(error, as_json=False)
        sys.exit(error.exit_code)


class Options:
    """The options that all commands share and that may stand anywhere on the command line."""

    def __init__(self) -> None:
        self.debug, self.strict_plugins = False, False
        self.without: list[str] = []


def _split(words: Sequence[str]) -> tuple[list[str], Options]:
    """The command's own words, and the options of all commands; all is the command's after ``--``."""
    options, kept, rest = Options(), list[str](), iter(words)
    for word in rest:
        if word == "--":
            kept += [word, *rest]
        elif word == "--debug":
            options.debug = True
        elif word == "--strict-plugins":
            options.strict_plugins = True
        elif word.startswith("--no-plugin="):
            options.without.append(word.partition("=")[2])
        elif word == "--no-plugin":
            name = next(rest, None)
            if name is None:
                what = "--no-plugin needs the name of a plugin"
                print(f"perfdojo-sdk: {what}", file=sys.stderr)
                _wrong_usage(what, "--json" in words)
            options.without.append(name)
        else:
            kept.append(word)
    return kept, options


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "Usage: perfdojo-sdk COMMAND [ARGUMENTS] [--json] [--debug] [--strict-plugins] [--no-plugin NAME]",
        "",
        "Optimise machine-learning kernels as a game over a readable tree IR.",
        "",
        "Commands:",
        *(f"  {name:{width}}  {line}" for name, line in COMMANDS.items()),
        "",
        "Everywhere: --no-plugin NAME leaves a plugin out, --strict-plugins makes any broken plugin fatal,",
        "--debug shows the traceback of an error. PERFDOJO_PLUGINS=a,b uses only these plugins.",
        "",
        "perfdojo-sdk COMMAND --help describes one command; perfdojo-sdk --version prints the version.",
    ]
    return "\n".join(lines)


def unknown(word: str) -> str:
    from perfdojo_sdk.core.errors import closest

    what = f"unknown option {word}" if word.startswith("-") else f"unknown command {word!r}"
    return f"{what}; {closest(word, list(COMMANDS))}"


def _wrong_usage(what: str, as_json: bool) -> NoReturn:
    """Exit with the code of wrong usage, after a JSON error if asked for; the text was printed before."""
    if as_json:
        from perfdojo_sdk.cli.console import report_as_json
        from perfdojo_sdk.core.errors import DojoError

        report_as_json(DojoError("PD-C010", what, hint="`perfdojo-sdk COMMAND --help` describes a command"))
    sys.exit(USAGE)


def _require_linux() -> None:
    """:class:`UnavailableError` on a system whose processes and files work otherwise."""
    from perfdojo_sdk.core.errors import UnavailableError

    if sys.platform != "linux":
        raise UnavailableError(
            "PD-C012",
            f"PerfDojo SDK runs on Linux, and this system is {sys.platform}",
            why="kernels are kept apart by means that only Linux has (sealed memory, subreapers, /proc)",
            hint="use Linux, in a container or a virtual machine",
        )


def _guarded(words: list[str], options: Options) -> NoReturn:
    """Run a command; turn its exceptions into a message and an exit code."""
    from perfdojo_sdk.cli.console import report, show_tracebacks
    from perfdojo_sdk.core.errors import DojoError

    try:
        _require_linux()
    except DojoError as refused:
        report(refused, as_json="--json" in words)
        sys.exit(refused.exit_code)
    from perfdojo_sdk.plugins.discovery import Choice, choice

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not support every character
    chosen = choice.set(Choice(options.strict_plugins, frozenset(options.without)))
    if options.debug:
        show_tracebacks()
    try:
        _run(words[0], words[1:])
    except (DojoError, OSError) as raised:
        if options.debug:
            raise
        error = raised if isinstance(raised, DojoError) else _system_error(raised)
        report(error, as_json="--json" in words)
        sys.exit(error.exit_code)
    except SystemExit as leaving:
        if leaving.code in (INTERRUPTED, TERMINATED):
            how = "interrupted" if leaving.code == INTERRUPTED else "terminated"
            print(f"\n{how}{_continuation(words)}", file=sys.stderr)
        say: Callable[[], str] | None = getattr(leaving.__context__, "format_message", None)
        if leaving.code == USAGE and say is not None:
            _wrong_usage(say(), "--json" in words)  # what the parser has just refused
        raise
    finally:
        choice.reset(chosen)


#: Commands that keep what they have done and always resume; those with ``--resume`` resume on request.
_RESUMING = frozenset({"build-library", "kernelbench", "optimize", "reproduce"})


def _continuation(words: list[str]) -> str:
    """The end of the message of an interruption: the command that resumes; empty where nothing was kept."""
    asks = any("--resume" in option.opts for option in parser(words[0]).params)
    if not asks and words[0] not in _RESUMING:
        return ""
    request = " with --resume" if asks and "--resume" not in words else ""
    return f"; the same command{request} continues where it stopped"


def _system_error(error: OSError) -> DojoError:
    """Convert an error of the operating system: a full disk, no permission, no memory for a process."""
    from perfdojo_sdk.core.errors import DojoError

    if error.errno == errno.ENOSPC and error.filename is None:
        # Stdout itself may have failed: the rest of its buffer must not fail again when Python ends.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    where = f": {error.filename}" if error.filename is not None else ""
    what = f"the operating system refused: {error.strerror or error}{where}"
    hint = "check free space, permissions and limits"
    if error.filename is not None:
        hint = _HINTS.get(error.errno or 0, hint)
    return DojoError("PD-E001", what, hint=f"{hint}; --debug shows where")


#: Error number -> what to try when the operating system refuses a path that the user named.
_HINTS = {
    errno.ENOENT: "check how the path is spelt, and that the folder for a new file is there",
    errno.ENOTDIR: "a part of the path is a file, not a folder: name another place",
    errno.EACCES: "name a place that you may read and write, or change its permissions",
    errno.EROFS: "nothing can be written there: name another place",
}


def _run(name: str, words: list[str]) -> NoReturn:
    """Parse the command's own arguments and call it; wrong usage exits with 2."""
    command = parser(name)
    with unwinding() as terminated:
        try:
            command(args=_own_words(command, words), prog_name=f"perfdojo-sdk {name}")
        except KeyboardInterrupt:
            sys.exit(TERMINATED if terminated() else INTERRUPTED)
        except SystemExit as leaving:
            if leaving.code == INTERRUPTED and terminated():
                sys.exit(TERMINATED)
            raise
    sys.exit(OK)


def _own_words(command: Any, words: list[str]) -> list[str]:
    """The words with a ``--json`` that stands before a command's command put behind it."""
    rest = words
    while hasattr(command, "commands") and rest[:1] == ["--json"]:
        rest = rest[1:]
    if len(rest) == len(words) or not rest or rest[0].startswith("-"):
        return rest
    return [rest[0], "--json", *rest[1:]]


def parser(name: str) -> Any:
    """The click command behind a line of the table; a module with an ``app`` has commands of its own."""
    import typer

    module = import_module(f"perfdojo_sdk.cli.{name.replace('-', '_')}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command()(module.command)
    return typer.main.get_command(app)
