"""The benchmarks measure what they say: results are checked, failures become rows."""

import importlib
import json

import numpy as np
import pytest

main = importlib.import_module("benchmarks.__main__").main
measure = importlib.import_module("benchmarks.measure")
WORKLOADS = importlib.import_module("benchmarks.workloads").WORKLOADS

RATES = (1e10, 1e11)
HASTE = measure.Limits(batches=2, batch=1e-3, first_call=None)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", WORKLOADS)
def test_numpy_and_tiledarray_pass_the_check(name):
    workload = WORKLOADS[name]
    rows = measure.measure(
        workload, ["NumPy", "tiledarray"], "cpu", workload.sizes.quick, HASTE, RATES
    )
    assert [row.failure for row in rows] == [None, None]
    assert all(row.median > 0 for row in rows)


def test_a_wrong_result_is_not_timed(monkeypatch):
    from benchmarks.peers.host import NumPy

    monkeypatch.setattr(NumPy, "build", lambda self, workload: lambda x: np.float64(1))
    (row,) = measure.measure(WORKLOADS["sum_of_squares"], ["NumPy"], "cpu", 50, HASTE, RATES)
    assert row.failure.startswith("wrong")
    assert row.median is None


def test_what_a_peer_raises_is_its_row(monkeypatch):
    from benchmarks.peers.host import NumPy

    def fail(x):
        raise MemoryError("no room for 16 GiB")

    monkeypatch.setattr(NumPy, "build", lambda self, workload: fail)
    (row,) = measure.measure(WORKLOADS["sum_of_squares"], ["NumPy"], "cpu", 50, HASTE, RATES)
    assert row.failure == "MemoryError: no room for 16 GiB"


def test_report_and_files(tmp_path, capsys):
    results, picture = tmp_path / "results.json", tmp_path / "results.png"
    status = main([
        "--quick", "--only", "dispatch", "--peers", "NumPy,tiledarray",
        "--json", str(results), "--plot", str(picture),
    ])  # fmt: skip
    assert status == 0
    rows = {row["peer"]: row for row in json.loads(results.read_text())["rows"]}
    assert rows["tiledarray"]["first"] > 0
    assert rows["NumPy"]["batches"]
    assert picture.stat().st_size > 10_000
    assert "x best" in capsys.readouterr().out


def test_unknown_names_are_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "sofmax"])
    assert "softmax" in capsys.readouterr().err
