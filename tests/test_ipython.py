"""The extension at IPython's prompt."""

import builtins

import numpy
import pytest

from tiledarray import config

interactive = pytest.importorskip("IPython.core.interactiveshell")


@pytest.fixture
def shell(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    before = builtins.__import__
    shell = interactive.InteractiveShell()
    yield shell
    shell.run_cell("%tiledarray off")
    assert builtins.__import__ is before


def test_cells_get_tiledarray_and_modules_beside_them_too(shell, tmp_path, capsys):
    (tmp_path / "beside.py").write_text("import numpy as np\n")
    shell.run_cell("%load_ext tiledarray")
    shell.run_cell("import numpy as np, beside, scipy.ndimage as nd")
    assert shell.user_ns["np"].__name__ == "tiledarray"
    assert shell.user_ns["beside"].np is shell.user_ns["np"]
    assert shell.user_ns["nd"]._filters.np is numpy
    shell.run_cell("%tiledarray off")
    shell.run_cell("import numpy as np")
    assert shell.user_ns["np"] is numpy
    shell.run_cell("%tiledarray on")
    shell.run_cell("import numpy as np")
    assert shell.user_ns["np"].__name__ == "tiledarray"
    shell.run_cell("%unload_ext tiledarray")
    shell.run_cell("import numpy as np")
    assert shell.user_ns["np"] is numpy
    assert "Error" not in capsys.readouterr().out
    shell.run_cell("%load_ext tiledarray")
    assert "np is NumPy already; import it again" in capsys.readouterr().out


@pytest.mark.compiler
def test_a_cell_explains_itself(shell, capsys):
    shell.run_cell("%load_ext tiledarray")
    shell.run_cell("import numpy as np\nx = np.linspace(0, 1, 5000).reshape(50, 100)\nx.tolist();")
    capsys.readouterr()
    run = shell.run_cell
    run("%%explain\ny = (np.exp(x) * 2).sum(axis=1); print(y.shape, y[0] > 1)\nz = y + 1")
    text = capsys.readouterr().out
    assert "(50,) True" in text and "ta_row_sum" in text
    assert "exp, multiply, sum" in text
    ran, _, pending = text.partition("not computed yet:")
    assert "run once:" in ran
    assert "explain: z = float64[50]" in pending and "reads    y " in pending


def test_every_cell_explained(shell, capsys):
    shell.run_cell("%load_ext tiledarray")
    shell.run_cell("%tiledarray explain")
    shell.run_cell("import numpy as np\nprint(np.unique(np.ones(3)))")
    assert "In[" in capsys.readouterr().out.partition("done by NumPy itself:")[2]
    with config.override(at_once=1000):
        shell.run_cell("k = 1")
        assert capsys.readouterr().out == ""
        shell.run_cell("y = np.ones(3)\nfor _ in range(50): y[1] = y[0] + y[2]")
    text = capsys.readouterr().out
    assert "elements, one by one: 150 read or written: In[" in text or "cell:2" in text
    assert "verdict:" in text
    shell.run_cell("%tiledarray sometimes")
    shell.run_cell("%tiledarray on")
    shell.run_cell("print(np.unique(np.ones(3)))")
    assert "done by NumPy itself" not in capsys.readouterr().out.partition("tiledarray is on")[2]


def test_timeit_measures_the_work(shell, capsys):
    from tiledarray.execution.spans import counters

    shell.run_cell("%load_ext tiledarray")
    shell.run_cell("import numpy as np\nx = np.ones(200000)\nfloat(x[0])")
    capsys.readouterr()
    told = "what each run recorded was computed in it"
    with config.override(compile="never"):
        for code in ("%timeit -n 3 -r 2 x + 1", "%%timeit -n 3 -r 2 y = x * 2\nz = y + 1"):
            before = counters["op by op"]
            shell.run_cell(code)
            text = capsys.readouterr().out
            assert counters["op by op"] - before >= 6
            assert "2 runs, 3 loops each" in text and told in text, text
        shell.run_cell("%timeit -n 3 -r 2 float(x[5])")
        assert told not in capsys.readouterr().out
        result = shell.run_cell("%timeit -q -o -n 3 -r 2 no_such_name + x").error_in_exec
        assert isinstance(result, NameError)
        assert shell.ast_transformers == []
        capsys.readouterr()
        shell.run_cell("%unload_ext tiledarray")
        before = counters["op by op"]
        shell.run_cell("%timeit -n 3 -r 2 x + 1")
        assert counters["op by op"] == before and "loops each" in capsys.readouterr().out
