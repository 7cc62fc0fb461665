from pathlib import Path

import pytest

pytest.importorskip("numba")

from numba.core import config

from gradientmail.codecs import encoding, rounding
from gradientmail.codecs.compiling import cache_folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "calls.py").write_text("from called import f\n")
    (folder / "called.py").write_text("def f(): return 1\n")
    return folder


def changed(package: Path) -> Path:
    (package / "called.py").write_text("def f(): return 2\n")
    cache_folder.cache_clear()
    return package


def test_a_kernel_is_compiled_again_when_another_file_changes(package: Path) -> None:
    before = cache_folder("", package)
    assert before == cache_folder("", package)
    assert cache_folder("", changed(package)) != before


def test_the_cache_lies_where_numba_is_told_to_put_it(package: Path, tmp_path: Path) -> None:
    assert cache_folder(str(tmp_path / "told"), package).parent == tmp_path / "told"


def test_the_cache_lies_beside_the_sources_else_in_the_users_cache(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder("", package).parent == package / "__pycache__"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("os.access", lambda *_: False)
    cache_folder.cache_clear()
    assert cache_folder("", package).parent == tmp_path / "cache" / "gradientmail"


@pytest.mark.parametrize("kernel", [encoding.predict_steps, rounding.cells_of])
def test_kernels_are_kept_there(kernel: object) -> None:
    folder = kernel.stats.cache_path  # type: ignore[attr-defined]
    assert cache_folder(config.CACHE_DIR) in Path(folder).parents
