"""What is written into a kernel's ``Args``, slot by slot."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiledarray.devices.device import resolve
from tiledarray.execution.arguments import Arguments, Binding
from tiledarray.fusion.ir import ONE, Value
from tiledarray.kernels.text.program import Slot
from tiledarray.ops.movement import leaf

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def written(slots, params, values=(), buffers=None, header=()):
    binding = Binding.of(slots, {value: value for value in values})
    args = Arguments(header, binding.fields)
    binding.locate(args.slots, buffers or {}, params)
    binding.fill(args.slots, params, lambda size: 1000 + size, lambda count: 2000 + count)
    return args.packed()


def param(ctype, number=0):
    return Slot("param", "p", ctype, number=number, param=float)


@given(INT64, st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 20))
def test_numbers(step, length, start, modulus):
    slots = [
        Slot("size", "n", "i64", number=length),
        Slot("size", "o", "i64", number=length, offset=((ONE, 3), (0, 2))),
        Slot("phase", "h", "i64", number=modulus, offset=((0, -1),)),
        Slot("scratch", "s", "u8", number=64),
        Slot("counters", "c", "u32", number=7),
        param("i64", 1),
    ]
    expected = (length, length + 3 + 2 * start, -start % modulus, 1064, 2007, step)
    assert written(slots, [start, step]) == struct.pack("=6q", *expected)


@given(st.floats(), st.complex_numbers(), st.integers(-(1 << 31), (1 << 31) - 1))
def test_scalars(x, z, k):
    slots = [param("f64"), param("c128", 1), param("i32", 2), param("f32")]
    with np.errstate(over="ignore"):
        single = np.float32(x)
    expected = struct.pack("=dddi4xf4x", x, z.real, z.imag, k, single)
    assert written(slots, [x, z, k]) == expected


def test_what_is_too_large_for_a_single_is_infinite():
    largest = float(np.finfo(np.float32).max)
    for value in (largest, largest * (1 + 2**-26), 2 * largest, -1e300):
        with np.errstate(over="ignore"):
            assert written([param("f32")], [value])[:4] == np.float32(value).tobytes()


def test_unsigned_beyond_the_signed():
    for number in (2**63, 2**64 - 1, -1):
        assert written([param("i64")], [number]) == (number % 2**64).to_bytes(8, "little")


@pytest.mark.parametrize("header", [(), (5, 6, 7, 8)])
def test_addresses(header):
    buffer = resolve("cpu").allocate((4, 4), np.dtype(np.float32))
    value = Value(0, leaf, None, (), (4, 4), np.dtype(np.float32))
    slots = [
        Slot("pointer", "a", "f32", value=value),
        Slot("pointer", "b", "f32", value=value, offset=((ONE, 5), (0, 4), (1, 1))),
    ]
    found = written(slots, [2, 3], [value], {value: buffer}, header)
    start = buffer.pointer
    assert found == struct.pack(f"={len(header)}q2q", *header, start, start + 4 * (5 + 8 + 3))
