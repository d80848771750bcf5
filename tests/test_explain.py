"""What `explain` says: kernels, members and their lines, bytes, updates, refusals, sources."""

import inspect
import os
import re
from xml.etree import ElementTree

import numpy
import pytest

import tiledarray as np
from tiledarray import config
from tiledarray.devices.device import Device
from tiledarray.insight.explain import Explanation, explain
from tiledarray.insight.measure import Profile, copy_bandwidth
from tiledarray.insight.session import Session
from tiledarray.recording.stretch import fallbacks, local

HERE = os.path.relpath(__file__)


@pytest.fixture(autouse=True)
def clean():
    local.recorder.reset()
    fallbacks.clear()
    with config.override(compile="wait", device="cpu"):
        yield
    local.recorder.reset()


def array(*shape, dtype="f4"):
    values = numpy.random.default_rng(0).random(shape).astype(dtype)
    return np.asarray(values)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def places(step):
    return [int(place.rpartition(":")[2]) for place, _ in step.fused]


def test_a_fused_kernel_with_its_lines():
    x = array(300, 517)
    y = softmax(x)
    explanation = explain(y)
    assert y.node.buffer is None  # nothing was computed
    (step,) = explanation.plan.steps
    first = softmax.__code__.co_firstlineno
    assert step.ops == ["max", "subtract", "exp", "sum", "divide"]
    assert places(step) == [first + 1, first + 2]
    assert step.form == "row"
    assert step.notes["domain"] == "i0 = 300 (grid) · i1 = 517 (lane, reduced)"
    assert [use.label for use in step.reads] == ["x"]
    assert [use.label for use in step.writes] == ["y"]
    assert step.bytes_moved == 2 * x.nbytes == explanation.plan.least_bytes
    text = str(explanation)
    assert f"{HERE}:{first + 2}  sum, divide" in text
    assert "float32[300, 517]" in text and "1 kernel" in text and "(1.00 x)" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_a_computed_array_tells_the_plan_that_made_it():
    y = softmax(array(20, 30))
    pending = explain(y)
    y.numpy()
    computed = explain(y)
    assert "computed" in str(computed) and "compiled" in computed.plan.state
    assert [s.ops for s in computed.plan.steps] == [s.ops for s in pending.plan.steps]


def test_op_by_op_is_still_told_by_its_plan():
    with config.override(compile="never"):
        y = softmax(array(20, 31))
        y.numpy()
    assert explain(y).plan.kernels[0].ops == ["max", "subtract", "exp", "sum", "divide"]


def test_data_has_no_plan():
    explanation = explain(array(3))
    assert explanation.plan is None
    assert "holds data" in str(explanation)


def test_a_view_is_explained_by_its_base():
    x = array(50, 60) * 2
    assert explain(x[3:, ::2]).plan.kernels[0].ops == ["multiply"]


def test_results_that_live_arrays_keep():
    x = array(100, 200)
    centred = x - x.mean(axis=0)
    result = np.exp(centred) @ centred.T
    explanation = explain(result)
    kept = [use for step in explanation.plan.kernels for use in step.writes
            if use.label == "centred"]
    assert len(kept) == 1 and "kept: a live array holds it" in kept[0].note
    assert "other pending array" in " ".join(explanation.notes)
    (call,) = explanation.plan.calls
    assert call.name == "matmul"
    assert {use.label for use in call.reads} == {"t1", "centred"}


def test_updates_say_how_and_why():
    u = np.zeros((40, 50))
    u[0] = 1.0
    u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1])
    notes = [step.notes["update"] for step in explain(u).plan.kernels if "update" in step.notes]
    assert notes == [
        "the rest is filled beside the region: the old value is the same everywhere",
        "the rest is copied beside the region: it reads the old value at other places",
    ]


def test_a_loop_is_told_once():
    u = array(30, 40)
    for _ in range(5):
        u[1:-1] = (u[2:] + u[:-2]) / 2
    text = str(explain(u))
    assert text.count("the same again: steps") == 1
    assert "more alike)" in text or "alike)" in text


def test_refusals_name_lines_and_reasons():
    x = array(30, 40)
    both = x.sum(axis=0), x.sum(axis=1)
    refusals = explain(*both).plan.refusals
    assert any(re.search(rf"sum \({HERE}:\d+\).* not in step 1: it reduces axes", r)
               for r in refusals), refusals


def test_rewrites_are_named():
    y = array(6, 5, 1).reshape(6, 5) * 2
    explanation = explain(y)
    assert explanation.plan.rules and "simplified: reshape" in str(explanation)


def test_source_on_request():
    y = array(7, 9) * 3
    assert "TA_KERNEL" not in str(explain(y))
    assert "TA_KERNEL(ta_map_multiply" in str(explain(y, level="source"))


def test_programs_on_request():
    x, centres = array(3000, 2), array(5, 2)
    near = ((x[:, None] - centres[None]) ** 2).sum(axis=-1).argmin(axis=1)
    assert str(explain(near, level="tile")).endswith("""
program of step 1, ta_column_argmin:
for each i0 < 3000:
  pass 1 over i1 < 5:
    x9 = reduce argmin(add(square(subtract(x[2*i0], centres[2*i1])), square(subtract(x[2*i0 + 1],
        centres[2*i1 + 1]))))
  store near[i0] = x9""")
    y = softmax(array(3000, 400)) * np.arange(400)
    y[:, 0] = 7
    total = np.cumsum(x, axis=0)[:, 1] / 2
    pooled = array(3000, 20)[np.asarray(numpy.arange(6000).reshape(-1, 3) // 2)].sum(axis=1)
    told = str(explain(y, total, pooled, level="tile"))
    for program in ("""
for each i0 < 3000:
  pass 1 over i1 < 400:
    x1 = reduce max(in3[400*i0 + i1])
  pass 2 over i1 < 400:
    x3 = exp(subtract(in3[400*i0 + i1], x1)), held
    x4 = reduce sum(x3)
  pass 3 over i1 < 400:
    store t1[400*i0 + i1] = multiply(divide(x3, x4), i1)
""", """
for each i1 < 2:
  pass 1 over i0 < 3000:
    x1 = scan cumsum(x[2*i0 + i1])
    store t2[2*i0 + i1] = x1
""", """
for each i0 < 2000, i1 < 20:
  store pooled[20*i0 + i1] = add(add(in5[i1 + 20 * in4[3*i0]], in5[i1 + 20 * in4[3*i0 + 1]]), in5[i1
      + 20 * in4[3*i0 + 2]])"""):
        assert program in told
    with pytest.raises(ValueError, match="level must be one of plan, tile, source, not 'tiles'"):
        explain(y, level="tiles")


@pytest.mark.compiler
def test_measured_times_leave_everything_as_it_was():
    u = array(64, 64)
    before = u.numpy().copy()
    u[3] += 1.0
    explanation = explain(u, measure=True)
    assert all(step.measured > 0 for step in explanation.plan.kernels)
    assert "measured" in str(explanation)
    assert u.node.buffer is None
    before[3] += 1
    numpy.testing.assert_array_equal(u.numpy(), before)
    assert "stand-ins" in str(explain(u, measure=True))


def test_fallbacks_are_told_with_their_lines():
    np.unique(array(5))
    line = test_fallbacks_are_told_with_their_lines.__code__.co_firstlineno + 1
    assert f"unique ({HERE}:{line})" in str(explain(array(3) + 1))


def test_partial_results_are_placed_in_global_scratch():
    explanation = explain(array(1_000_000).sum())
    assert "partial results in global scratch" in explanation.plan.kernels[0].notes["values"]


def test_variables_are_not_kept_alive():
    x = array(10) + 1
    explain(x)
    x.numpy()
    node = x.node
    explain(x * 2)
    del x
    import gc
    import sys

    gc.collect()
    assert sys.getrefcount(node) == 2


def test_only_arrays_of_ours():
    with pytest.raises(TypeError, match="explain takes arrays of tiledarray, not ndarray"):
        explain(numpy.ones(3))


def test_the_page_stands_alone(tmp_path):
    x = array(30, 40)
    page = explain(softmax(x) @ x.T).to_html(tmp_path / "explain.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<svg" in page and "matmul" in page
    assert "src=" not in page and "href=" not in page
    drawing = ElementTree.fromstring(page[page.index("<svg"):page.index("</svg>") + 6])
    boxes = [box.attrib["class"] for box in drawing.iter("g")]
    assert sorted(boxes) == ["array", "call", "kernel", "output"]


def test_explanations_print_as_text():
    explanation = explain(array(4) + 1)
    assert isinstance(explanation, Explanation)
    assert repr(explanation) == str(explanation)


@pytest.mark.compiler
def test_the_profile_counts_equal_kernels_as_one():
    x = array(100, 10)
    with Profile() as profile:
        for k in (2, 3, 4, 5):
            (x * k + 1).numpy()
    (entry,) = profile.slowest()
    assert entry.runs == 4 and entry.seconds > 0 and entry.name == "ta_map_add"
    assert list(profile.executables.values()) == [4]


def test_the_bandwidth_is_plausible():
    assert 1e8 < copy_bandwidth(Device("cpu")) < 1e13


def test_the_namespace_has_it():
    assert np.explain is explain


def test_the_reason_of_a_fallback_is_told():
    with Session("a stretch") as session:
        np.tri(-1)
    line = test_the_reason_of_a_fallback_is_told.__code__.co_firstlineno + 2
    assert f"tri ({HERE}:{line}: negative lengths)" in str(explain(array(3) + 1))
    assert f"{HERE}:{line}" in str(session) and "tri  (negative lengths)" in str(session)


def test_what_numpy_computed_at_once_is_told_so():
    with config.override(at_once=1 << 16):
        x = np.arange(100.0)
        y = x * 2
        told = str(explain(y))
        assert told.startswith("explain: y = float64[100] on cpu, computed")
        assert "computed at once by NumPy: 100 elements, at most config.at_once (65,536)" in told
        assert "1 element, " in str(explain(y.sum()))
        large = np.asarray(numpy.ones(100_000)) + 1
        both = explain(y, large)
        assert both.plan is not None and "computed at once by NumPy: 100 elements" in str(both)
        assert large.node.buffer is None
        total = large.sum()
        assert float(total) == 200_000.0  # settled since, but a plan computed it
        assert explain(total).plan is not None


def test_a_kernel_of_tiles_tells_where_its_ops_were_recorded_and_all_its_results():
    drawn = numpy.random.default_rng(0).standard_normal((3000, 6, 6))
    factors, wanted = np.asarray(drawn), np.asarray(drawn[:, 0])
    here = inspect.currentframe().f_lineno
    with config.override(linalg_errors="deferred"):
        matrix = np.exp(-factors * factors) + factors @ factors.mT + 6 * np.eye(6)
        lower = np.linalg.cholesky(matrix)
        found = np.linalg.solve(matrix, wanted[..., None])
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        weight = (found[..., 0] * wanted).sum(axis=1)
        del matrix, lower, found
        (step,) = explain(logs, weight).plan.steps
    places = {name: place for place, names in step.fused for name in names}
    lines = {"exp": 2, "matmul": 2, "linalg.cholesky": 3, "linalg.solve": 4, "log": 5}
    for name, line in lines.items():
        assert places[name].endswith(f"test_explain.py:{here + line}")
    assert all(places.values())
    assert {use.label: use.nbytes for use in step.writes} == {"logs": 24_000, "weight": 24_000}
    assert len({use.label for use in step.reads}) == len(step.reads)


def test_a_long_chain_is_written_in_parts():
    with config.override(at_once=0):
        x = np.ones(1000)
        for _ in range(600):
            x = x * 1.01 + 0.5
        text = str(explain(x, level="tile"))
    assert max(map(len, text.splitlines())) < 1000
