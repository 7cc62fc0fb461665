"""The export of the command line is whole where the run's program can be had."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.cli.conftest import Cli
from tests.cli.programs import tiny


def test_it_is_the_programs_own_state_dict(cli: Cli, run_url: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"

    result = cli("export", run_url, out)

    assert result.exit_code == 0
    assert (
        result.stdout == f"wrote {out}: {out.stat().st_size:,} bytes, fragments at version 0, 0\n"
    )
    loaded, model = load_file(out), tiny(seed=0, data_seed=0)[0]
    assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
    model.load_state_dict(loaded)


def test_without_the_program_it_says_so_and_writes_what_is_exchanged(
    cli: Cli, run_url: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.delattr("tests.cli.programs.tiny")
    out = tmp_path / "model.safetensors"

    result = cli("export", run_url, out)

    assert result.exit_code == 0
    assert "exporting without the run's program" in result.stderr
    assert "1.num_batches_tracked" in result.stderr
    assert "1.running_mean" in load_file(out)


def test_a_program_that_was_asked_for_must_be_there(cli: Cli, run_url: Path, tmp_path) -> None:
    result = cli("export", run_url, tmp_path / "out", "--program", "tests.cli.programs:tini")

    assert result.exit_code == 2
    assert "did you mean 'tiny'?" in result.stderr


def test_another_model_is_refused_with_the_code_of_the_contract(cli: Cli, run_url, tmp_path):
    result = cli("export", run_url, tmp_path / "out", "--program", "tests.cli.programs:other")

    assert result.exit_code == 5
    assert "weight: shape" in result.stderr


def test_a_version_is_chosen_or_refused(cli: Cli, run_url: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"

    assert cli("export", run_url, out, "--version", 0).exit_code == 0
    result = cli("export", run_url, out, "--version", 7)

    assert result.exit_code == 2
    assert "choose 0 to 0" in result.stderr


def test_a_damaged_payload_has_the_code_of_damage(cli: Cli, run_url: Path, tmp_path: Path) -> None:
    payload = next((run_url / "fragments").rglob("*.safetensors"))
    payload.write_bytes(payload.read_bytes()[:-1])

    result = cli("export", run_url, tmp_path / "out")

    assert result.exit_code == 6
    assert "differs from its record's digest" in result.stderr
