"""Programs named on the command line: found, called with what they accept, checked."""

from pathlib import Path

import pytest
import torch
from torch import nn

from gradientmail.errors import SettingsError
from gradientmail.learner.program import Program, data_seed, examples, load_program

HEADER = """
import torch
from torch import nn
from gradientmail.learner.program import Program

def parts():
    model = nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters()), iter([1, 2]), lambda model, batch: batch
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request):
    """Write ``body`` into a module of this test's own and load ``program`` from it."""
    monkeypatch.chdir(tmp_path)
    module = f"user_{request.node.originalname}_{abs(hash(request.node.name))}"

    def load(body: str, function: str = "program") -> Program:
        Path(f"{module}.py").write_text(HEADER + body, encoding="utf-8")
        return load_program(
            f"{module}:{function}", device=torch.device("cpu"), seed=3, data_seed=4
        )

    return load


def load_by_name(name: str) -> Program:
    return load_program(name, device=torch.device("cpu"), seed=0, data_seed=0)


def test_a_tuple_of_four_is_a_program(load) -> None:
    program = load("def program():\n    return parts()")
    assert isinstance(program.model, nn.Linear)
    assert list(program.batches) == [1, 2]
    assert program.evaluate is None


def test_a_program_is_returned_as_it_is(load) -> None:
    program = load("def program():\n    return Program(*parts(), tokens=len)")
    assert program.tokens is len


@pytest.mark.parametrize(
    ("signature", "seen"),
    [
        ("seed", "{'seed': 3}"),
        ("device, data_seed=9", "{'device': device(type='cpu'), 'data_seed': 4}"),
        ("**kw", "{'kw': {'device': device(type='cpu'), 'seed': 3, 'data_seed': 4}}"),
    ],
)
def test_only_accepted_keywords_are_passed(load, signature: str, seen: str) -> None:
    program = load(
        f"def program({signature}):\n"
        "    seen = repr(locals())\n"
        "    return Program(*parts(), tokens=lambda batch: seen)"
    )
    assert program.tokens(None) == seen


@pytest.mark.parametrize("name", ["gradientmail.programs.gpt", ":program", "module:", ""])
def test_a_name_without_a_function_says_what_to_write(name: str) -> None:
    with pytest.raises(SettingsError, match="not of the form module:function, such as"):
        load_by_name(name)


def test_an_unknown_module_names_the_nearest() -> None:
    with pytest.raises(
        SettingsError, match=r"no module 'gradientmail\.learner\.programm'.*'program'"
    ):
        load_by_name("gradientmail.learner.programm:program")


def test_an_unknown_top_module_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trainer.py").write_text("", encoding="utf-8")
    with pytest.raises(SettingsError, match=f"looked in {tmp_path}.*did you mean 'trainer'"):
        load_by_name("trianer:program")


def test_an_unknown_package_is_named_not_its_child() -> None:
    with pytest.raises(SettingsError, match="there is no module 'no_such_package'"):
        load_by_name("no_such_package.child:program")


def test_a_missing_dependency_is_named_not_the_module(load) -> None:
    with pytest.raises(SettingsError, match="needs 'no_such_dependency': install it"):
        load("import no_such_dependency")


def test_an_unknown_function_names_the_nearest(load) -> None:
    with pytest.raises(SettingsError, match="has no function 'progam'; did you mean 'program'"):
        load("def program():\n    return parts()", function="progam")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return None", "returned NoneType; return a gradientmail Program or the tuple"),
        ("return parts()[:3]", "returned tuple; return"),
        (
            "return (None, *parts()[1:])",
            "as model an object of type NoneType; it must be of type Module",
        ),
        ("m, _, b, f = parts(); return m, f, b, f", "as optimizer an object of type function"),
        (
            "m, o, _, f = parts(); return m, o, 3, f",
            "as batches an object of type int; it must be of type Iterable",
        ),
        ("m, o, b, _ = parts(); return m, o, b, b", "as loss an object of type list_iterator"),
    ],
)
def test_a_wrong_result_is_told_field_by_field(load, body: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        load(f"def program():\n    {body}")


@pytest.mark.parametrize(
    "batch",
    [torch.zeros(5, 3), (torch.zeros(5), torch.zeros(2)), [torch.zeros(5)], {"x": torch.zeros(5)}],
)
def test_examples_are_the_length_of_the_first_tensor(batch: object) -> None:
    assert examples(batch) == 5


@pytest.mark.parametrize("batch", [torch.tensor(1.0), (), {}, ["text"], 7])
def test_a_batch_that_cannot_be_counted_says_what_to_give(batch: object) -> None:
    with pytest.raises(SettingsError, match="tokens=<function of a batch>"):
        examples(batch)


def test_each_learner_draws_other_data_and_the_same_at_every_start() -> None:
    assert data_seed(0, "a") == 4085470497
    assert len({data_seed(seed, name) for seed in (0, 1) for name in ("a", "b")}) == 4
