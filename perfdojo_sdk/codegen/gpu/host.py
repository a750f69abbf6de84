"""The host's part of a kernel: what it launches, in order, as C functions of device pointers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from perfdojo_sdk.codegen.c import CEmitter, Function
from perfdojo_sdk.codegen.c_values import C_TYPES
from perfdojo_sdk.codegen.gpu.mapping import Launch, ProgramMap
from perfdojo_sdk.codegen.gpu.placement import Placed, dynamic_bytes
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.program import Node, Scope

_TAIL = "void *workspace, size_t workspace_bytes, int threads"


class HostPart(CEmitter, ABC):
    """Emits the functions that launch; the emitter of the kernels says what they are given."""

    mapped: ProgramMap
    placed: Mapping[str, Placed]
    workspace: int
    index: str

    @abstractmethod
    def _arrays(self, launch: Launch) -> Sequence[Placed]:
        """The arguments of a launch's kernel."""

    def _host(self) -> str:
        arrays = [f"const {self._type(a)} *{self.input_name(a)}" for a in self.program.given]
        arrays += [f"{self._type(a)} *{c_name(a)}" for a in self.program.outputs]
        names = [*map(self.input_name, self.program.given), *map(c_name, self.program.outputs)]
        self.function = Function(())
        f = self.function
        f.line("char *const pd_base = (char *)workspace;")
        if self.workspace:
            f.line(f"if (workspace_bytes < {self.workspace}u)")
            f.line("    return 1;")
        f.line("(void)pd_base, (void)workspace_bytes, (void)threads, (void)stream;")
        for name in self.program.given:
            if not self.program.occurrences[name]:
                f.line(f"(void){c_name(name)};")
        f.line("PD_BEGIN_CALL();")
        for name in self.program.outputs:
            if name in self.program.in_out:
                cells = self.program.buffer_of[name].cells
                f.line(f"PD_GIVEN({c_name(name)}, {self.input_name(name)}, {cells});")
        self._host_nodes(self.program.body, ())
        f.line("return PD_END_CALL();")
        launch = [f"PD_HOST int {self.symbol}_on({', '.join([*arrays, _TAIL, 'void *stream'])})", "{"]
        launch += [*f.lines, "}", ""]
        call = f"{self.symbol}_on({', '.join([*names, 'workspace', 'workspace_bytes', 'threads', '0'])})"
        plain = [f"PD_HOST int {self.symbol}({', '.join([*arrays, _TAIL])})", "{", f"    return {call};", "}"]
        query = [f"PD_HOST size_t {self.symbol}_workspace_bytes(int threads)", "{", "    (void)threads;"]
        query += [f"    return {self.workspace};", "}", ""]
        return "\n".join(["#ifdef PD_HOST", *query, *launch, *plain, "#endif", ""])

    def _host_nodes(self, nodes: tuple[Node, ...], above: tuple[int, ...]) -> None:
        for position, node in enumerate(nodes):
            path = (*above, position)
            if self.mapped.role.get(path) == "host":
                assert isinstance(node, Scope)
                i = f"i{len(path) - 1}"
                with self.function.block(f"for ({self.index} {i} = 0; {i} < {node.size}; {i}++)"):
                    self._host_nodes(node.body, path)
            else:
                self.function.line(self._call(self.mapped.launch_of(path)))

    def _call(self, launch: Launch) -> str:
        number = self.mapped.launches.index(launch)
        arguments = []
        for p in self._arrays(launch):
            kind = C_TYPES[p.buffer.dtype]
            memory = f"({kind} *)(pd_base + {p.offset})"
            arguments.append(memory if p.kind == "memory" else c_name(p.buffer.name))
        arguments += [f"i{level}" for level in launch.host_levels]
        sizes, word = f"{launch.blocks}, {launch.threads}", "PD_LAUNCH"
        if dynamic := dynamic_bytes(self.mapped, self.placed, launch):
            word, sizes = "PD_LAUNCH_DYNAMIC", f"{sizes}, {dynamic}"
        return f"{word}({self.symbol}_k{number}, {sizes}, {', '.join(arguments)});"
