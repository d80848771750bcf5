"""Random whole programs give what NumPy gives, on every tier.

``PROGRAMS_TEST_COUNT=5000 pytest tests/test_programs.py -k op_by_op`` tries that many.
"""

import os

import numpy
import pytest

import tiledarray
from tests.plans import DEVICE, HOST, planned
from tests.programs import Program, difference, run, shortened, write_program
from tiledarray import config
from tiledarray.execution import known
from tiledarray.execution.op_by_op import chain
from tiledarray.execution.op_by_op import run as reference
from tiledarray.kernels.text.program import print_kernel
from tiledarray.recording.stretch import local

COUNT = int(os.environ.get("PROGRAMS_TEST_COUNT", "0"))
FIRST = int(os.environ.get("PROGRAMS_TEST_FIRST", "0"))
CHUNK = 10


def chunks(count):
    """First seeds of chunks of programs, so many altogether unless the environment says."""
    return range(FIRST, FIRST + (COUNT or count), CHUNK)


def failure(program: Program, **settings):
    """Run a program under some settings; say what went wrong, if anything did."""
    local.recorder.reset()
    try:
        with config.override(verify=True, **settings):
            ours = run(program.lines, tiledarray, tiledarray.array, numpy.asarray)
            return difference(program, ours)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def check(program: Program, **settings):
    """Fail with the shortest such program unless it does what it does with NumPy."""
    complaint = failure(program, **settings)
    if complaint:
        small = shortened(program, lambda p: failure(p, **settings) is not None)
        complaint = failure(small, **settings) or complaint
        pytest.fail(f"{settings}: {complaint}\n{small}", pytrace=False)


def check_chunk(first, *, longest=40, **settings):
    for seed in range(first, first + CHUNK):
        check(write_program(seed, 10, longest), cut=[400, 400, 7, 15][seed % 4], **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", chunks(200))
def test_op_by_op(first):
    check_chunk(first, compile="never")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", chunks(200))
def test_op_by_op_in_blocks(first, monkeypatch):
    monkeypatch.setattr(chain, "BLOCK", 24)  # so that small arrays have several
    monkeypatch.setattr(chain, "WORTH_CHAINING", 2)
    monkeypatch.setattr(chain, "WORTH_THREAD", 0)
    monkeypatch.setattr(reference, "WORTH_CHAINING", 2)
    monkeypatch.setattr(reference, "WORTH_SHARING", 2)
    check_chunk(3000 + first, compile="never", threads=2)


@pytest.mark.parametrize("first", chunks(100))
def test_small_arrays_at_once(first):
    check_chunk(4000 + first, compile="never", at_once=30)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", chunks(30))
def test_compiled(first):
    check_chunk(first, longest=25, compile="wait")


@pytest.mark.parametrize("first", chunks(20))
def test_while_kernels_compile(first, monkeypatch):
    monkeypatch.setattr(known, "SMALL_SECONDS", 0.0)  # nothing is too small to compile
    for _ in range(2):  # the second time, some kernels are there
        check_chunk(1000 + first, longest=25, compile="background")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", chunks(200))
def test_planned_for_each_device(first):
    def problem(program):
        local.recorder.reset()
        try:
            with config.override(cut=1000, compile="never"):
                names = run(program.lines, tiledarray, tiledarray.array)
                arrays = [x for x in names.values() if isinstance(x, tiledarray.TiledArray)]
                pending = [x for x in arrays if x.origin().node.buffer is None]
                for target in (HOST, DEVICE) if pending else ():
                    for kernel in planned(*pending, target=target).kernels:
                        print_kernel(kernel, device=target is DEVICE)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    for seed in range(2000 + first, 2000 + first + CHUNK):
        program = write_program(seed)
        complaint = problem(program)
        if complaint:
            small = shortened(program, lambda p: problem(p) is not None)
            pytest.fail(f"seed {seed}: {problem(small)}\n{small}", pytrace=False)


def test_programs_are_the_same_everywhere():
    assert str(write_program(7)) == str(write_program(7))
