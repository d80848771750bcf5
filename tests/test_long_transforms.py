"""Transforms too long for a tile, in two kernels with what is around; and those of columns."""


import numpy
import pytest

from tests import tiles
from tests.plans import DEVICE, HOST
from tests.test_tiles import compiled_for_a_device
from tiledarray.fusion.plan import Call, Kernel
from tiledarray.fusion.target import Target
from tiledarray.fusion.tiles import teams
from tiledarray.fusion.tiles.ir import Load, Store
from tiledarray.fusion.tiles.text import text_of
from tiledarray.kernels.compile import cuda

H200 = Target("cuda", 132, 227 << 10, contract=True)
WIDE = {"f": "f8", "F": "c16"}


few = tiles.few_are_worth_it()


@pytest.fixture
def short(monkeypatch):
    """What does not fit into 64 complex numbers of single precision is long."""
    monkeypatch.setattr(teams, "LONGEST_TRANSFORM", 64)


def drawn(*shape, dtype="F", seed=0):
    values = numpy.random.default_rng(seed)
    real = values.normal(size=shape)
    wide = real + 1j * values.normal(size=shape) if numpy.dtype(dtype).kind == "c" else real
    return wide.astype(dtype)


# ---- programs of rows, what is multiplied, and numbers for each row ------------------------------


def filtered(np, x, h, s):
    return np.fft.ifft(np.fft.fft(x) * h)


def spectrum(np, x, h, s):
    return abs(np.fft.fft(x * h)) ** 2


def averaged(np, x, h, s):
    return (abs(np.fft.fft(x * h)) ** 2).mean(0)


def windowed(np, x, h, s):
    return np.log(abs(np.fft.fft((x - 0.5) * h.real * s.real)) ** 2 + 1e-3)


def of_real(np, x, h, s):
    return abs(np.fft.fft(x.real * h.real)) ** 2


def correlated(np, x, h, s):
    return np.fft.ifft(np.fft.fft(x) * np.conj(np.fft.fft(h))).real * 2


def twice(np, x, h, s):
    return np.fft.fft(np.fft.fft(x) * h)


def there_and_back(np, x, h, s):
    return np.fft.ifft(np.fft.fft(x)) - x


def asked_for_as_well(np, x, h, s):
    found = np.fft.fft(x)
    return found, abs(found), np.fft.ifft(found * s)


def masked(np, x, h, s):
    found = np.fft.fft(x * 0.5)
    large = abs(found) > 3
    return large, np.where(large, found, 0), found.sum(-1)


def normed(np, x, h, s):
    return np.fft.ifft(np.fft.fft(x + 1, norm="ortho") * s, norm="forward"), np.fft.ifft(
        x * h, norm="ortho") * 2


def by_scalars(np, x, h, s):
    return (np.fft.fft(x * 3.0) * 2 - 1j) / (np.fft.fft(x * h) + 100)


def turned(np, x, h, s):
    return np.fft.fft(x[..., ::-1] * 2) + 1, np.fft.ifft(x[..., ::-1]) * h[::-1]


def shared_window(np, x, h, s):
    tapered = x * h.real
    return np.fft.fft(tapered) * s, tapered.sum(-1)


def shifted(np, x, h, s):
    n = x.shape[-1]
    k = np.arange(n)
    return np.fft.ifft(np.fft.fft(x) * np.exp(-2j * np.pi * k * 3 / n).astype(x.dtype)) * 1


PROGRAMS = [filtered, spectrum, averaged, windowed, of_real, correlated, twice, there_and_back,
            asked_for_as_well, masked, normed, by_scalars, turned, shared_window, shifted]
SHAPES = {"F": [(3, 256), (512,), (2, 2, 768), (2, 1024)], "D": [(3, 128), (256,), (2, 2, 64)]}


def check(tier, program, *inputs, folder=None, target=DEVICE):
    exact = program(numpy, *(x.astype(WIDE.get(x.dtype.char, x.dtype)) for x in inputs))
    want = program(numpy, *inputs)
    plan, results = tiles.through(tier, program, *inputs, target=target, folder=folder)
    several = isinstance(want, tuple)
    for found, theirs, best in zip(
            results, want if several else (want,), exact if several else (exact,), strict=True):
        assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind == "b":
            assert (found != theirs).mean() < 1e-2
            continue
        off = abs(theirs - best).max()
        unit = numpy.finfo(theirs.dtype).eps * max(1, abs(best).max())
        assert abs(found - best).max() <= 2 * off + 16 * unit
    return plan


def alternating(plan):
    """How many problems lie side by side in the plan's kernels of tiles."""
    return [kernel.program.beside for kernel in tiles.kernels(plan)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted(program, dtype, short):
    for shape in SHAPES[dtype]:
        x, h = drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype, seed=1)
        s = drawn(*shape[:-1], 1, dtype=dtype, seed=2)
        plan = check("interpreter", program, x, h, s)
        assert not any(isinstance(step, Call) and step.value.op.name.startswith("fft")
                       for step in plan.steps)
        assert len(tiles.kernels(plan)) >= 2


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_emulated(program, dtype, short, tmp_path):
    for shape in SHAPES[dtype][:2]:
        x, h = drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype, seed=1)
        check("emulated", program, x, h, drawn(*shape[:-1], 1, dtype=dtype, seed=2),
              folder=tmp_path)


# ---- plans ---------------------------------------------------------------------------------------


def kernels_of(plan):
    """Kernels of tiles; others may only be a table of roots of one."""
    others = [step for step in plan.steps if isinstance(step, Kernel)]
    assert all(store.sink.value.size <= 1 << 20 for kernel in others for store in kernel.stores)
    return tiles.kernels(plan)


@pytest.mark.parametrize(("n", "dtype"), [
    (1 << 14, "F"), (1 << 16, "F"), (1 << 18, "F"), (1 << 20, "F"), (20480, "F"),
    (1 << 16, "D"), (48 * 1000, "D")])
def test_as_few_passes_as_there_are(n, dtype):
    x, h = numpy.zeros((2, n), dtype), numpy.zeros(n, dtype)
    for program, passes in ((filtered, (2, 2, 2)), (spectrum, (2, 1.5))):
        plan = tiles.planned_for(tiles.traced_of(program, x, h, x[:, :1]), H200)
        found = kernels_of(plan)
        assert len(found) == len(passes)
        for kernel, times in zip(found, passes, strict=True):
            # Beside these once the window or filter, and the roots in between, for all rows.
            assert kernel.bytes_moved <= times * x.nbytes + 2 * h.nbytes
            assert kernel.program.beside >= 4
            copies = [s for s in kernel.program.statements if isinstance(s, Load | Store)]
            assert len(copies) <= 2


@pytest.mark.parametrize("program", [
    lambda np, x: np.fft.fft(x),
    lambda np, x: np.fft.fft(x, n=x.shape[-1] // 2 + 64) * 2,
    lambda np, x: np.fft.fft(x[:, :32771]) * 2,
    lambda np, x: np.fft.fft(x[:, :32776]) * 2,
    lambda np, x: np.fft.ifft(np.fft.fft(x.real) * 2).real,
    lambda np, x: np.fft.rfft(x.real * 2),
])
def test_what_is_left_to_libraries(program):
    """Alone cuFFT is faster, and of real arrays it needs half; some lengths are not split."""
    x = numpy.zeros((2, 1 << 16), "F")
    plan = tiles.planned_for(tiles.traced_of(program, x), H200)
    assert not tiles.kernels(plan)


def test_never_on_the_host():
    x = numpy.zeros((2, 1 << 16), "F")
    assert not tiles.kernels(tiles.planned_for(tiles.traced_of(filtered, x, x[0], x), HOST))


@pytest.mark.sampled(3)
@pytest.mark.skipif(cuda.available() is not None, reason=f"no CUDA compiler: {cuda.available()}")
@pytest.mark.parametrize(("n", "dtype"), [(1 << 16, "F"), (1 << 20, "F"), (1 << 18, "D")])
def test_nothing_spills(n, dtype):
    x, h = numpy.zeros((2, n), dtype), numpy.zeros(n, dtype)
    for program in (filtered, spectrum):
        plan = tiles.planned_for(tiles.traced_of(program, x, h, x[:, :1]), H200)
        for kernel in tiles.kernels(plan):
            compiled_for_a_device(kernel, "sm_90", "sm_80")


# ---- columns -------------------------------------------------------------------------------------


def down(np, x, h):
    return np.fft.fft(x * h, axis=-2) + 1


def down_and_up(np, x, h):
    return np.fft.ifft(np.fft.fft(x, axis=-2) * h, axis=-2)


def padded_down(np, x, h):
    return np.fft.fft(x, n=x.shape[-2] + 3, axis=-2) * 2, np.fft.ifft(x, n=5, axis=-2)


def half_down(np, x, h):
    return np.fft.rfft(x.real, axis=-2) * 2, np.fft.irfft(x, axis=-2) + h.real[:1]


def into_rows(np, x, h):
    return np.swapaxes(np.fft.fft(np.swapaxes(x, -1, -2) * 2), -1, -2) + 1


COLUMNS = [down, down_and_up, padded_down, half_down, into_rows]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("tier", ["interpreter", "emulated"])
@pytest.mark.parametrize("dtype", ["F", "D"])
@pytest.mark.parametrize("program", COLUMNS)
def test_columns(program, dtype, tier, tmp_path):
    shapes = [(16, 32), (12, 23), (2, 30, 50), (9, 64), (4, 40)]
    for shape in shapes if tier == "interpreter" else shapes[1:3]:
        x, h = drawn(*shape, dtype=dtype), drawn(shape[-2], 1, dtype=dtype, seed=1)
        plan = check(tier, program, x, h, folder=tmp_path)
        if shape[-2] > 15 and program not in (into_rows, padded_down):
            assert all(alternating(plan))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "dtype"), [
    (1000, "F"), (2048, "F"), (4096, "F"), (6000, "F"), (8192, "F"), (1024, "D"), (4096, "D")])
def test_blocks_are_no_larger_than_a_multiprocessor_takes(n, dtype):
    x = numpy.zeros((n, 4096), dtype)
    for target in (DEVICE, H200):
        traced = tiles.traced_of(lambda np, x: np.fft.fft(x * 2, axis=0), x)
        plan = tiles.planned_for(traced, target)
        for kernel in tiles.kernels(plan):
            assert kernel.side * kernel.teams <= 1024
            assert kernel.schedule.shared_bytes <= target.shared_bytes - 1024


def test_the_text_says_what_lies_side_by_side():
    x, h = numpy.zeros((2, 1 << 14), "F"), numpy.zeros(1 << 14, "F")
    first, second = tiles.kernels(tiles.planned_for(tiles.traced_of(spectrum, x, h, x), H200))
    assert "for each of 2 x 128 problems, 16 side by side" in text_of(first.program)
    assert "turned" not in text_of(first.program)
    assert "load t1 from a1[b0, b1, i2] for i2 < 128, turned" in text_of(second.program)


def test_columns_are_read_by_whole_lines():
    x, h = drawn(512, 320), drawn(512, 1)
    for target, count in ((DEVICE, 8), (H200, 16)):
        (kernel,) = tiles.kernels(tiles.planned_for(tiles.traced_of(down, x, h), target))
        assert (kernel.program.beside, kernel.teams) == (count, count)
        assert kernel.bytes_moved == 2 * x.nbytes + h.nbytes
