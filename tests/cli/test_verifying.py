"""``verify`` says what was proved, what could not be, and what is wrong; its code says which."""

import io
from pathlib import Path

import msgspec
from rich.console import Console

from gradientmail.cli.verifying import rendered
from gradientmail.operations.verified import Fault, FragmentVerified, NotDerived, Verified
from tests.cli.conftest import Cli

VERIFIED = Verified(
    run="run-1",
    fragments=(
        FragmentVerified(
            fragment=0,
            version=120,
            payloads=8,
            derived=3,
            empty=1,
            not_derived=(
                NotDerived(first=1, last=115, reason="the payloads are swept"),
                NotDerived(first=118, last=118, reason="a contribution is [missing]"),
            ),
        ),
    ),
    faults=(Fault(key="mail/0000/x", reason="it is missing"),),
)


def text_of(verified: Verified) -> str:
    console = Console(width=100, file=io.StringIO())
    console.print(rendered(verified))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_says_what_was_derived_what_was_not_and_what_is_wrong() -> None:
    text = text_of(VERIFIED)
    assert ["0", "120", "8", "3", "1", "116"] in [line.split() for line in text.splitlines()]
    assert "fragment 0, versions 1 to 115: the payloads are swept" in text
    assert "fragment 0, version 118: a contribution is [missing]" in text
    assert "wrong: mail/0000/x: it is missing" in text
    assert text.splitlines()[-1].strip() == "1 faults"


def test_a_sound_run_exits_with_0_as_a_table_or_as_json(cli: Cli, run_url: Path) -> None:
    human, as_json = cli("verify", run_url), cli("verify", run_url, "--json")
    assert (human.exit_code, as_json.exit_code) == (0, 0)
    assert "nothing is wrong" in human.stdout
    verified = msgspec.json.decode(as_json.stdout, type=Verified)
    assert [one.fragment for one in verified.fragments] == [0, 1]


def test_a_damaged_run_exits_with_6_and_names_the_object(cli: Cli, run_url: Path) -> None:
    (payload,) = (run_url / "fragments" / "0001").rglob("*.safetensors")
    payload.write_bytes(payload.read_bytes()[:-1])
    result = cli("verify", run_url)
    assert result.exit_code == 6
    assert payload.name in result.stdout.replace("\n", "")
