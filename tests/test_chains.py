"""Launches in a row that read near where they write are done together, tile by tile (on a GPU)."""

import shutil
from dataclasses import replace

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiledarray as np
from tests.chain_programs import (
    IN_REGISTERS,
    IN_ROUNDS,
    IN_SPACE,
    PROGRAMS,
    cube,
    heat,
    programs,
    random_values,
    stencils,
)
from tests.emulation import emulate, emulated
from tests.plans import DEVICE, HOST, fresh_recorder, moved, planned
from tiledarray import config
from tiledarray.devices import device
from tiledarray.execution.executable import Executable
from tiledarray.execution.packing import packed, unpacked
from tiledarray.fusion import limits, passes
from tiledarray.fusion.chains import find, resident, tiles
from tiledarray.fusion.chains.kernel import chain, laps
from tiledarray.fusion.chains.verify import found_in_chain
from tiledarray.graph.program import trace
from tiledarray.insight.facts import Reporter
from tiledarray.kernels.compile import cuda
from tiledarray.kernels.text.program import print_kernel
from tiledarray.ops.op import Leaf
from tiledarray.recording.stretch import local

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


clean = fresh_recorder(at_once=0)


@pytest.fixture
def always(monkeypatch):
    """Whatever can be a chain is one, of small tiles."""
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
    shapes = {1: [(64,)], 2: [(16, 32), (24, 16)], 3: [(9, 12, 16), (14, 14, 14)]}
    monkeypatch.setattr(tiles, "shapes", shapes.__getitem__)


def agrees(folder, program, given):
    """The emulated kernels give what NumPy gives; return the plan."""
    wanted = program(numpy, *(x.copy() for x in given))
    local.recorder.reset()
    plan, found = emulated(program, *given, folder=folder)
    for x, y in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        epsilon = 3e-6 if x.dtype in ("f4", "c8") else 1e-13
        numpy.testing.assert_allclose(x.reshape(y.shape), y, rtol=epsilon, atol=epsilon * 8)
    return plan


def stages(plan):
    return [kernel.steps if kernel.form == "chain" else 1 for kernel in plan.kernels]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_numpys(name, dtype, folder):
    program, arrays = PROGRAMS[name]
    plan = agrees(folder, program, arrays(dtype))
    assert any(kernel.form == "chain" for kernel in plan.kernels)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", PROGRAMS)
def test_small_tiles_are_numpys(name, folder):
    program, arrays = PROGRAMS[name]
    agrees(folder, program, arrays("f8"))


@pytest.mark.usefixtures("always")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])
@given(programs())
def test_any_steps_are_numpys(folder, case):
    agrees(folder, *case)


TILES = [(16, 32), (20, 64), (40, 96), (64, 128), (80, 64), (24, 48)]


@pytest.fixture(params=TILES, ids=str)
def tile_of(request, monkeypatch):
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
    monkeypatch.setattr(tiles, "shapes", {2: [request.param]}.__getitem__)
    return request.param


@pytest.mark.sampled(32)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", IN_REGISTERS)
def test_an_array_stays_in_registers(name, dtype, tile_of, folder):
    program, count = IN_REGISTERS[name]
    if tile_of == (64, 128) and dtype == "f8":
        pytest.skip("more than the shared memory of this device")
    shape = (101, 150) if tile_of[0] > 20 else (50, 90)
    given = [random_values(*shape, dtype="i4" if name == "numbers" else dtype, seed=k) / (
        1 if name == "numbers" else 2) for k in range(count)]
    given = [x.astype("i4") if name == "numbers" else x for x in given]
    plan = agrees(folder, program, given)
    held = ["Held<" in print_kernel(kernel, device=True).text for kernel in plan.kernels
            if kernel.form == "chain"]
    assert any(held) is (tile_of[1] % 32 == 0 and (name, tile_of) != ("wide", (16, 32)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])
@given(stencils(), st.sampled_from(TILES))
def test_any_stencils_are_numpys(folder, monkeypatch, case, shape):
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
    monkeypatch.setattr(tiles, "shapes", {2: [shape]}.__getitem__)
    agrees(folder, *case)


# ---- tiles that stay on chip for several rounds ------------------------------------------------

CORES = [(48, 64, 4), (32, 64, 6), (64, 128, 4), (48, 128, 8), (40, 64, 2)]


def set_rounds(monkeypatch, rows, lanes, length):
    """Launches are dear, so that steps which repeat go in rounds of this length where they can."""
    monkeypatch.setattr(limits, "GPU", replace(
        limits.GPU, chain_gain=1e-9, chain_stages=4, chain_launch=1.0))
    monkeypatch.setattr(tiles, "shapes", {2: [(24, 32)]}.__getitem__)
    for name, value in (("ROWS", [rows]), ("LANES", [lanes]), ("LENGTHS", [length])):
        monkeypatch.setattr(resident, name, value)


def in_rounds(plan):
    return [kernel for kernel in plan.kernels if kernel.form == "chain" and kernel.rounds > 1]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("core", CORES[:4], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", IN_ROUNDS)
def test_tiles_that_stay_on_chip_are_numpys(name, dtype, core, folder, monkeypatch):
    program, count, wanted = IN_ROUNDS[name]
    set_rounds(monkeypatch, *core)
    given = [random_values(101, 150, dtype="i4" if name == "numbers" else dtype, seed=k)
             for k in range(count)]
    with config.override(cut=10_000):
        plan = agrees(folder, program, given)
    found = len(in_rounds(plan))
    assert found <= wanted
    if core == (48, 64, 4) and (name, dtype) != ("wide", "f8"):
        assert found == wanted
    assert all(print_kernel(kernel, device=True).at_once for kernel in in_rounds(plan))


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])
@given(stencils(((95, 133), (130, 70), (64, 128)), steps=(5, 19)), st.sampled_from(CORES))
def test_any_stencils_in_rounds_are_numpys(folder, monkeypatch, case, core):
    set_rounds(monkeypatch, *core)
    with config.override(cut=10_000):
        agrees(folder, *case)


def many_steps(steps=100, shape=(1024, 1024), target=DEVICE):
    u = np.array(random_values(*shape, dtype="f4"))
    with config.override(cut=10_000):
        return planned(heat(np, u, steps), target=target)


LARGE = replace(DEVICE, shared_bytes=227 << 10)


def test_a_hundred_steps_are_one_launch():
    plan = many_steps(target=LARGE)
    (kernel,) = plan.kernels
    assert kernel.rounds > 1 and kernel.steps == 100 and moved(plan) == 2 * 1024 * 1024 * 4
    assert kernel.schedule.blocks <= DEVICE.workers * kernel.schedule.resident
    assert not in_rounds(many_steps(40, (4096, 4096), LARGE))  # more than is on chip
    never = many_steps(40, target=replace(LARGE, choice=(("chain_rounds", 1),)))
    assert not in_rounds(never) and len(never.kernels) > 2


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_rounds_compile_without_spills(arch):
    target = replace(DEVICE, shared_bytes=(227 if arch == "sm_90" else 163) << 10)
    (kernel,) = in_rounds(many_steps(target=target))
    text = print_kernel(kernel, device=True).text.replace("NAME", "rounds")
    report = cuda.compile_source(text, "rounds", arch).reports["rounds"]
    threads = kernel.schedule.threads[0] * kernel.schedule.threads[1]
    assert report.clean and report.registers * threads * kernel.schedule.resident <= 1 << 16


def test_an_array_between_rounds_that_is_asked_for_is_stored():
    u = np.array(random_values(1024, 1024, dtype="f4"))
    with config.override(cut=10_000):
        v = heat(np, u, 40)
        w = heat(np, v, 60)
        plan = planned(v, w, target=LARGE)
    assert stages(plan) == [40, 60]
    assert moved(plan) == 4 * u.nbytes


def test_the_verifier_sees_what_is_wrong_of_rounds():
    (kernel,) = many_steps(target=LARGE).kernels
    assert [*found_in_chain(kernel)] == []
    kernel.rest = len(kernel.stages) + 1
    assert any("last round" in text for text in found_in_chain(kernel))
    kernel.rest, tile = 4, kernel.tile
    kernel.tile = (kernel.halo[0][0] - 1, tile[1])
    assert any("beyond its neighbours" in text for text in found_in_chain(kernel))


# ---- plane after plane -------------------------------------------------------------------------

PLANES = [(9, 32), (14, 14), (12, 40), (16, 64)]
BOXES = [(19, 21, 40), (7, 30, 33), (40, 9, 12)]


@pytest.fixture(params=PLANES, ids=str)
def planes_of(request, monkeypatch):
    """Three dimensions are gone through plane after plane, of such tiles."""
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
    monkeypatch.setattr(tiles, "shapes", {1: [(64,)], 2: [(16, 32)], 3: []}.__getitem__)
    monkeypatch.setattr(tiles, "planes", lambda: [request.param])
    return request.param


def walks(plan):
    return [kernel for kernel in plan.kernels if kernel.form == "chain" and kernel.walk]


@pytest.mark.sampled(32)
@pytest.mark.parametrize("rounds", [0, 4])  # with one block along the first dimension, and many
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i2"])
@pytest.mark.parametrize("name", IN_SPACE)
def test_blocks_go_plane_after_plane(name, dtype, rounds, planes_of, folder, monkeypatch):
    monkeypatch.setattr(tiles, "MOST_ROUNDS", rounds)
    program, count = IN_SPACE[name]
    arrays = [random_values(19, 21, 40, dtype="f8" if dtype == "i2" else dtype, seed=k)
              for k in range(count)]
    if dtype == "i2":  # too short to be copied while threads go on
        program, arrays = counting, [numpy.round(9 * arrays[0]).astype("i2")]
    plan = agrees(folder, program, arrays)
    assert walks(plan) or dtype in ("c16", "f8")  # of which some have no room on chip


def counting(np, u):
    for _ in range(3):
        w = u.copy()
        w[1:-1] += u[2:] - u[:-2] // 2
        u = w
    return u


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(stencils(BOXES), st.sampled_from([0, 4]), st.sampled_from(PLANES))
def test_any_stencils_in_space_are_numpys(folder, monkeypatch, case, rounds, plane):
    monkeypatch.setattr(limits, "GPU", replace(limits.GPU, chain_gain=1e-9))
    monkeypatch.setattr(tiles, "shapes", {2: [(16, 32)], 3: []}.__getitem__)
    monkeypatch.setattr(tiles, "planes", lambda: [plane])
    monkeypatch.setattr(tiles, "MOST_ROUNDS", rounds)
    agrees(folder, *case)


@pytest.mark.sampled(6)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_any_steps_plane_after_plane_are_numpys(planes_of, folder, case):
    agrees(folder, *case)


def in_space(steps, n=512):
    target = replace(DEVICE, shared_bytes=227 << 10)
    return planned(cube(np, np.asarray(numpy.empty((n, n, n), "f4")), steps), target=target)


def test_steps_in_space_read_and_write_once():
    (made,) = in_space(3).kernels
    assert [*made.walk.lags] == [1, 3, 5] and {*made.walk.depths.values()} == {4}
    assert made.bytes_moved == 2 * 4 * 512**3 and len(made.walk.direct) == 1
    assert made.halo == ((3, 3),) * 3 and made.schedule.shared_bytes <= 227 << 10


@pytest.mark.sampled(6)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["cube", "exchange", "torus", "wave"])
def test_steps_in_space_compile_without_spills(name, arch):
    program, count = IN_SPACE[name]
    target = replace(DEVICE, shared_bytes=(227 if arch == "sm_90" else 163) << 10)
    arrays = [np.asarray(numpy.empty((512, 512, 512), "f4")) for _ in range(count)]
    result = program(np, *arrays)
    plan = planned(*(result if isinstance(result, tuple) else (result,)), target=target)
    for text in {print_kernel(kernel, device=True).text for kernel in walks(plan)}:
        report = cuda.compile_source(text.replace("NAME", "walk"), "walk", arch).reports["walk"]
        assert report.clean


def test_the_verifier_sees_what_is_wrong_of_turns():
    (made,) = in_space(3).kernels
    steps = made.walk
    assert [*found_in_chain(made)] == []
    made.walk = replace(steps, lags=[1, 2, 5])
    assert any("before they are there" in text for text in found_in_chain(made))
    made.walk = replace(steps, depths=dict.fromkeys(steps.depths, 3))
    assert any("planes that are overwritten" in text for text in found_in_chain(made))
    made.walk, places = steps, made.places
    made.places = dict.fromkeys(places, 0)
    assert any("lie where others do" in text for text in found_in_chain(made))
    made.places = {version: place + made.schedule.shared_bytes // 2
                   for version, place in places.items()}
    assert any("beyond its shared memory" in text for text in found_in_chain(made))


def test_gradients_of_steps_are_done_together():
    def slope(u):
        return np.grad(lambda u: (heat(np, u, 12) ** 2).sum())(u)

    u = np.array(random_values(1024, 1024, dtype="f4"))
    plan = planned(slope(u), target=DEVICE)
    assert len(plan.kernels) <= 7 < sum(stages(plan))


def test_a_chain_reads_and_writes_once():
    u = np.array(random_values(1024, 1024, dtype="f4"))
    plan = planned(heat(np, u, 6), target=DEVICE)
    assert stages(plan) == [6] and moved(plan) == 2 * u.nbytes
    assert planned(heat(np, u, 6), target=HOST).kernels[0].form == "map"


def test_chains_of_many_steps_are_alike():
    u = np.array(random_values(1024, 1024, dtype="f4"))
    with config.override(cut=10_000):
        plan = planned(heat(np, u, 40), target=replace(DEVICE, choice=(("chain_rounds", 1),)))
    lengths = stages(plan)
    assert sum(lengths) == 40 and len({*lengths[:-1]}) == 1
    assert len({kernel.tile for kernel in plan.kernels[:-1]}) == 1


def test_what_is_asked_for_between_is_stored():
    u = np.array(random_values(1024, 1024, dtype="f4"))
    first = heat(np, u, 3)
    second = heat(np, first, 3)
    plan = planned(first, second, target=DEVICE)
    written = [kernel.stores for kernel in plan.kernels]
    assert sum(map(len, written)) == 2 and len(plan.kernels) <= 2


@pytest.mark.usefixtures("always")
@given(st.integers(0, 30), st.integers(0, 30), st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[
          HealthCheck.function_scoped_fixture])
def test_a_plan_is_right_where_it_says_that_it_suits(folder, first, second, inside):
    """Where slices begin is a scalar: what a chain takes for granted of it is in the plan."""
    x, u = random_values(60), random_values(40, seed=1)

    def program(np, u, x, begin):
        u = u.copy()
        for _ in range(3):
            u[1:-1] = 0.5 * (u[2:] + u[:-2])
            if inside:  # the array itself, written somewhere
                u[begin:begin + 4] += 0.25 * u[2:6]
            else:
                u[1:-1] += 0.125 * x[begin:begin + 20].sum()
                u[3:23] += 0.25 * x[begin:begin + 20]
        return u

    traces = []
    for begin in (first, second):
        local.recorder.reset()
        result = program(np, np.array(u), np.array(x), begin)
        traces.append((trace([result.origin().node]), result))
    (made_for, _), (other, _) = traces
    plan = passes.plan(made_for.signature, frozenset(), DEVICE, params=made_for.params, check=True)
    assert plan.suits(made_for.params)
    for traced, begin in ((made_for, first), (other, second)):
        if traced.signature != made_for.signature or not plan.suits(traced.params):
            continue
        executable = Executable(plan, device.resolve("cpu"))
        emulate(executable, folder)
        leaves = {value: traced.nodes[value.attrs].buffer for value in plan.values
                  if isinstance(value.op, Leaf)}
        (found,) = executable.run(leaves, traced.params)
        numpy.testing.assert_allclose(
            found.array, program(numpy, u, x, begin), rtol=1e-13, atol=1e-13)


def test_what_does_not_pay_is_tried_once(monkeypatch):
    """What is read from far away has a halo of more than the core, at each of many steps."""
    tried = []
    monkeypatch.setattr(find, "chain", lambda *args: tried.append(args) or chain(*args))
    u = np.empty((300, 300, 300), "f4")
    for _ in range(20):
        u[9:-9, 9:-9, 9:-9] += u[18:, :-18, 18:] - u[:-18, 18:, :-18]
    plan = planned(u, target=DEVICE)
    assert not any(kernel.form == "chain" for kernel in plan.kernels) and len(tried) <= 32


def test_explain_tells_of_the_steps():
    program, _ = PROGRAMS["insulated"]
    u = np.array(random_values(900, 800, dtype="f4"))
    plan = planned(program(np, u), target=DEVICE)
    executable = Executable(plan, device.resolve("cpu"))
    sites = [None] * (max(plan.origin.values()) + 1)
    told = Reporter(executable, sites).run()
    step = told.steps[0]
    assert step.form == "chain" and [use.nbytes for use in step.reads] == [u.nbytes]
    assert "steps in tiles of" in step.notes["tile"] and "4 times:" in step.program
    assert step.program.count("multiply_add") == 1


def test_a_plan_with_chains_is_kept_as_data():
    u = np.array(random_values(64, 70))
    plan = planned(heat(np, u, 5), target=DEVICE)
    executable = Executable(plan, device.resolve("cpu"))
    again, programs, names = unpacked(packed(plan, executable.programs, executable.names))
    (kernel,), (other,) = plan.kernels, again.kernels
    assert programs[other].text == executable.programs[kernel].text
    assert programs[other].shared_bytes == executable.programs[kernel].shared_bytes > 0
    assert names[other] == "ta_chain_update" and len(again.outputs) == 1


def test_the_verifier_sees_what_is_wrong():
    u = np.array(random_values(300, 300))
    (made,) = planned(heat(np, u, 6), target=DEVICE).kernels
    assert [*found_in_chain(made)] == []
    places, needed = made.places, made.needed
    made.places = dict.fromkeys(places, 0)
    assert any("still lies" in text for text in found_in_chain(made))
    made.places = {key: 16 + place for key, place in places.items()}
    made.schedule.shared_bytes = 16 + max(places.values())
    assert any("beyond its shared memory" in text for text in found_in_chain(made))
    made.places = places
    made.needed = [dict.fromkeys(each, ((0, 0), (0, 0))) for each in needed]
    assert any("farther away" in text for text in found_in_chain(made))


@given(st.lists(st.sampled_from("abc"), max_size=20))
def test_laps_are_all_stages_in_order(keys):
    found = [key for first, period, times in laps(keys)
             for key in keys[first:first + period] * times]
    assert found == keys


def test_steps_of_several_launches_are_one_loop():
    assert [*laps([*"abcabcabc"])] == [(0, 3, 3)]
    assert [*laps([*"xabababy"])] == [(0, 1, 1), (1, 2, 3), (7, 1, 1)]
