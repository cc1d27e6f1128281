"""Kernels: compiled once, loaded from a file, never trusted blindly."""

from __future__ import annotations

import numpy as np
import pytest

from qloom.clustering import machinecode
from qloom.clustering.compiled import Kernel, compiled, vectorised

STEP = 3


@compiled
def _twice(value: float) -> float:
    """A kernel that another one calls."""
    return 2 * value


def _fill(values, step, out):
    total = 0.0
    for i in range(len(values)):
        out[i] = _twice(values[i]) + step * STEP
        total += out[i]
    return total


def _halve(values, by):
    for i in range(len(values)):
        values[i] = values[i] / by


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_kernel_computes_what_its_function_says(cache):
    values = np.arange(5.0)
    for kernel in (compiled(_fill), vectorised(_fill)):
        out, expected = np.empty(5), np.empty(5)
        assert kernel(values, 2, out) == _fill(values, 2, expected)
        assert (out == expected).all()


def test_it_is_compiled_once_for_each_kind_of_arguments(cache, monkeypatch):
    made = []
    compile_it = machinecode._compile
    monkeypatch.setattr(machinecode, "_compile", lambda *given: made.append(given) or compile_it(*given))
    for dtype in (np.float64, np.float32, np.float64):
        assert compiled(_fill)(np.ones(3, dtype), 0, np.empty(3)) == 6.0
    assert len(made) == 2


def test_a_damaged_file_is_made_again(cache):
    assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0
    (path,) = cache.glob("_fill-*.kernel")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-100], whole[:40] + b"?" + whole[41:]):
        path.write_bytes(damaged)
        assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0
        assert machinecode._read(path) is not None


def test_other_code_has_another_file(cache, monkeypatch):
    compiled(_fill)(np.ones(3), 1, np.empty(3))
    monkeypatch.setitem(globals(), "STEP", 4)
    assert compiled(_fill)(np.ones(3), 1, np.empty(3)) == 18.0
    monkeypatch.setitem(globals(), "_twice", Kernel(lambda value: 3 * value, fastmath=False))
    assert compiled(_fill)(np.ones(3), 1, np.empty(3)) == 21.0
    assert len(list(cache.glob("_fill-*.kernel"))) == 3


def test_another_llvmlite_has_another_file(cache, monkeypatch):
    for version in ("1.0", "2.0"):
        monkeypatch.setattr(machinecode.llvmlite, "__version__", version)
        assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0
    assert len(list(cache.glob("_fill-*.kernel"))) == 2


def test_a_user_without_a_home_has_the_cache_of_the_package(monkeypatch):
    def has_none():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(machinecode.Path, "home", has_none)
    assert [folder.name for folder in machinecode._folders()] == ["__pycache__"]


def test_it_works_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0


def test_what_goes_wrong_is_an_exception(cache):
    with pytest.raises(ArithmeticError, match="_halve"):
        compiled(_halve)(np.ones(3), 0)
    with pytest.raises(TypeError, match="contiguous"):
        compiled(_halve)(np.ones(6)[::2], 2)
    shared = np.ones(3)
    shared.flags.writeable = False
    with pytest.raises(Exception, match="readonly"):
        compiled(_halve)(shared, 2)
    assert shared.tolist() == [1.0, 1.0, 1.0]


def test_a_file_that_others_could_have_written_is_made_again(cache):
    assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0
    (path,) = cache.glob("_fill-*.kernel")
    path.chmod(0o666)
    assert compiled(_fill)(np.ones(3), 0, np.empty(3)) == 6.0
    assert path.stat().st_mode & 0o777 == 0o644
