"""Repeated bodies: instructions that are moved out of them, and the order of the others."""

from __future__ import annotations

import numpy as np
from perfdojo_riscv_snitch.codegen.assembly import Instruction, Register
from perfdojo_riscv_snitch.codegen.schedule import hoisted, scheduled
from perfdojo_riscv_snitch.passes import heuristic
from snitch_support import Game, run

from perfdojo_sdk.kernels.selection import select

READ, WRITE, OTHER = (Register("f", fixed=f"ft{k}") for k in range(3))
A, B, C, D = (Register("f") for _ in range(4))


def op(name: str, target: Register, *reads: Register) -> Instruction:
    return Instruction(f"{name} {{0}}", (target,), reads)


def test_chains_are_interleaved() -> None:
    chains = [op("fmul", A, READ), op("fadd", WRITE, A), op("fmul", B, READ), op("fadd", WRITE, B)]
    first, second, third, fourth = chains
    assert scheduled(chains) == [first, third, second, fourth]


def test_a_body_that_does_not_wait_stays_as_it_is() -> None:
    sums = [Instruction("fmadd", (r,), (READ, OTHER, r)) for r in (A, B, C, D)]
    assert scheduled(sums) == sums


def test_a_stream_write_does_not_overtake_a_stream_read() -> None:
    """The two may be of one cell, which is read first."""
    body = [op("fadd", A, B), op("fadd", C, A, READ), op("fmul", WRITE, D), op("fmul", D, C)]
    order = scheduled(body)
    assert order.index(body[1]) < order.index(body[2]) < order.index(body[3])


def test_what_never_changes_is_done_once() -> None:
    body = [op("vfcpka", A, B), op("fmul", C, A, READ), op("fadd", WRITE, C)]
    assert hoisted(body) == (body[:1], body[1:])


def test_what_is_read_before_or_written_twice_or_is_all_there_is_stays() -> None:
    carried = [op("fadd", C, A, READ), op("fmv", A, B)]
    twice = [op("fmv", A, B), op("fadd", WRITE, A), op("fmv", A, D)]
    stream = [op("fmv", A, READ), op("fadd", WRITE, A)]
    alone = [op("fmv", A, B)]
    for body in (carried, twice, stream, alone):
        assert hoisted(body) == ([], body)


def test_saxpy_is_as_fast_as_by_hand() -> None:
    game = Game()
    (kernel,) = select("saxpy[64]", game.plugins.operators_for(game.target), game.target.dialect)
    program = heuristic(kernel.program, game.rules, game.target)[0].program
    x, y = np.arange(64, dtype=np.float32), np.ones(64, np.float32)
    measured = run(program, {"a": np.array([3], np.float32), "x": x, "y": y})
    assert np.array_equal(measured.outputs["z"], 3 * x + y)
    assert measured.details["snitch.cycles"] <= 100
