"""Write the generated parts of docs/: what is between two markers comes from the code.

    <!-- generated: NAME -->
    ...
    <!-- end -->

Without arguments the files are rewritten; with --check the stale ones are named, and the exit
status is 1 when there are any.
"""

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import typer

from gradientmail.algorithm import CHOICES
from gradientmail.algorithms.presets import PRESETS
from gradientmail.choices import Choices
from gradientmail.cli.exits import CODES, UNEXPECTED
from gradientmail.cli.main import app
from gradientmail.closer.fragment import MAX_REJECTIONS
from gradientmail.codecs.blocks import LIMIT
from gradientmail.codecs.layout import ALIGN, CHUNK, TILE
from gradientmail.codecs.payload import METADATA_LIMIT_BYTES
from gradientmail.codecs.precision import Precision
from gradientmail.config import NodeSettings, RunSettings, Table
from gradientmail.mailbox import HINT_LIMIT_BYTES
from gradientmail.protocol.judging import MAX_NORM
from gradientmail.records import fields
from gradientmail.records.canonical import MAX_RECORD_BYTES
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.control import Boundary, Stop
from gradientmail.records.estimates import Estimates
from gradientmail.records.head import Head, Standing, Voucher
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import (
    FragmentSpec,
    Manifest,
    PayloadRef,
    PlanEntry,
    TensorSpec,
)
from gradientmail.records.presence import Presence
from gradientmail.store.buckets import PART_BYTES

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"<!-- generated: (?P<name>[^ ]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)

RECORDS: Sequence[type[msgspec.Struct]] = (
    Manifest,
    TensorSpec,
    FragmentSpec,
    PlanEntry,
    PayloadRef,
    ContributionRecord,
    RoundRecord,
    Participant,
    Rejection,
    Estimates,
    Term,
    Beat,
    Presence,
    Head,
    Voucher,
    Standing,
    Stop,
    Boundary,
)

NAMED_TYPES = {name: getattr(fields, name) for name in ("Name", "Nonce", "Digest", "Text")}

# What docstrings leave to a field's name; one entry for every record that has such a field.
MEANINGS = {
    "run": "The run's name, drawn at `init`.",
    "learner": "Name of the learner.",
    "closer": "Name of the closer.",
    "incarnation": "Drawn when the learner's process joined.",
    "nonce": "Random, unique to this object.",
    "fragment": "Index of the fragment, from 0.",
    "version": "Version of the fragment.",
    "term": "Number of the lease's term.",
    "steps": "Inner steps.",
    "tokens": "Tokens in them.",
    "samples": "Examples in them; 0 where its learner counts none.",
    "step_s": "Mean seconds of one inner step.",
    "key": "Key of the object.",
    "digest": "Digest of the object's bytes.",
    "size_bytes": "Size of the object.",
    "reason": "For people, one line.",
    "created_by": "Program and version that created the run.",
    "settings": "The run's settings; see [settings](settings.md).",
    "tensors": "The parameter contract: every tensor of the model, in model order.",
    "fragments": "The fragment plan, in order.",
    "entries": "Its tensors, in layout order.",
    "params": "Its published parameters.",
    "name": "Canonical name of the tensor.",
    "start_row": "First row; always 0 today.",
    "end_row": "Row after the last; always `none` today: to the last row.",
    "base": "The version it was made against.",
    "participants": "The contributions that were used, in the order they were summed.",
    "rejected": "What was not counted, and why; at most 100.",
    "estimates": "How long things take, handed from commit to commit.",
    "count": "Rises with every beat.",
    "released": "The holder's last word: the lease is free.",
    "posted": "Contributions posted so far.",
    "applied": "Of these, used by a commit.",
    "dropped": "Of these, used by no commit; their steps were carried on.",
    "bytes_up": "Bytes sent to the store.",
    "bytes_down": "Bytes received from the store.",
    "requests": "Operations asked of the store.",
    "device": "Where the model is.",
    "seen_at": "POSIX seconds on the learner's clock, for people.",
    "Presence.rejected": "Why its last rejected contribution was rejected.",
}


# -- what the code says ---------------------------------------------------------------------


def attributes(kind: type) -> dict[str, str]:
    """Return what the ``Attributes:`` of a docstring say, by name."""
    _, _, text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for name, meaning in re.findall(r"^    (\w+): ((?:.|\n {8})+)", text, re.MULTILINE):
        found[name] = re.sub(r"\s+", " ", meaning).strip().replace("``", "`")
    return found


def described(hint: Any) -> str:
    """Return a type in the words of the docs."""
    if name := next((name for name, known in NAMED_TYPES.items() if known == hint), None):
        return name
    if hint == Table:
        return "table"
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is Annotated:
            return _ranged(described(arguments[0]), arguments[1])
        case origin if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in arguments)
        case origin if origin in (UnionType, Union):
            return " or ".join(map(described, arguments))
        case origin if origin is tuple:
            return f"list of {described(arguments[0])}"
        case origin if origin is dict:
            return f"{described(arguments[1])} by {described(arguments[0])}"
    plain = {int: "integer", float: "number", bool: "`true`, `false`", str: "text"}
    return {**plain, NoneType: "`none`"}.get(hint) or hint.__name__


def _ranged(noun: str, meta: msgspec.Meta) -> str:
    """Return a type with its bounds; 2^53, up to which floats hold integers, goes unsaid."""
    bounds = {">=": meta.ge, ">": meta.gt, "<=": meta.le, "<": meta.lt}
    told = [f"{sign} {value:g}" for sign, value in bounds.items() if value not in (None, 2**53)]
    return f"{noun} {', '.join(told)}".strip().replace("e+0", "e").replace("e+", "e")


def shown(value: object) -> str:
    """Return a default as it is written in run.toml."""
    return f"`{_toml(value)}`"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(own)}' for key, own in value.items())} }}"
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def default(field: msgspec.structs.FieldInfo) -> object:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()  # type: ignore[misc]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


# -- parts ----------------------------------------------------------------------------------


def settings(kind: type[msgspec.Struct]) -> str:
    meanings = attributes(kind)
    rows = [
        [f"`{field.name}`", described(field.type), shown(default(field)), meanings[field.name]]
        for field in msgspec.structs.fields(kind)
    ]
    return table(["setting", "values", "default", "meaning"], rows)


def presets() -> str:
    names = list(PRESETS)
    keys = [
        key for key in RunSettings.__struct_fields__ if any(key in p for p in PRESETS.values())
    ]
    rows = [
        [
            f"`{key}`",
            *(shown(PRESETS[name][key]) if key in PRESETS[name] else "" for name in names),
        ]
        for key in keys
    ]
    return table(["setting", *(f"`{name}`" for name in names)], rows)


def choices(known: Choices[Any]) -> str:
    """Return each choice: what it does, its source, its settings with ranges and defaults."""
    rows = []
    for name, kind in known.built_in.items():
        text = inspect.cleandoc(kind.__doc__ or "").replace("``", "`")
        said = re.split(r"\n\n(?:Attributes|Source|Raises|Example|>>>)", text)[0]
        source = re.search(r"Source: ((?:.|\n)+?)(?:\n\n|$)", text)
        said = re.sub(r"\s+", " ", f"{said} {source[1] if source else ''}").strip()
        rows.append([f"`{name}`", said, _own_settings(kind)])
    return table([known.kind, "what it does, and its source", "settings"], rows)


def _own_settings(kind: type[msgspec.Struct]) -> str:
    meanings = attributes(kind)
    return "<br>".join(
        f"`{field.name}`: {described(field.type)}"
        f"{'' if field.required else f', default {shown(default(field))}'}: {meanings[field.name]}"
        for field in msgspec.structs.fields(kind)
    )


def record(kind: type[msgspec.Struct]) -> str:
    own = attributes(kind)
    rows = []
    for field in msgspec.structs.fields(kind):
        default = "" if field.required else "optional"
        meaning = own.get(field.name) or MEANINGS.get(
            f"{kind.__name__}.{field.name}", MEANINGS.get(field.name)
        )
        if meaning is None:
            raise KeyError(f"say what {kind.__name__}.{field.name} means in its docstring")
        rows.append([f"`{field.name}`", described(field.type), default, meaning])
    tag = kind.__struct_config__.tag
    first = [["`kind`", f"`{tag}`", "", "What this is, and the major version of its format."]]
    return table(["field", "type", "", "meaning"], [*(first if tag else []), *rows])


def codecs() -> str:
    rows = []
    for precision in Precision:
        entries = ", ".join(f"`{e.name}` {e.dtype}" for e in precision.entries)
        block = "" if precision.block is None else str(precision.block)
        rows.append([f"`{precision}`", f"{precision.bytes_per_parameter:.4g}", block, entries])
    return table(["codec", "bytes per number", "numbers per scale", "entries"], rows)


def limits() -> str:
    facts = {
        "bytes of a record": MAX_RECORD_BYTES,
        "bytes of a head, beat or presence that are read": HINT_LIMIT_BYTES,
        "bytes of a payload's metadata": METADATA_LIMIT_BYTES,
        "magnitude of a number that is sent": f"2^{math.log2(LIMIT):.0f}",
        "norm of one tensor of a contribution": f"{MAX_NORM:.0e}",
        "rejections named in one commit": MAX_REJECTIONS,
        "numbers that share a scale base (a tile)": TILE,
        "a tensor starts at a multiple of so many numbers": ALIGN,
        "numbers worked on at a time": CHUNK,
        "bytes of one part of a multipart upload": PART_BYTES,
    }
    values = ((what, f"{v:,}" if isinstance(v, int) else v) for what, v in facts.items())
    return table(["what", "limit or size"], values)


def exit_codes() -> str:
    rows = [["0", "", "Done."], [str(UNEXPECTED), "any other", "Not foreseen: report it."]]
    for kind, code in CODES.items():
        for each in (kind, *kind.__subclasses__()):
            meaning = (each.__doc__ or "").partition("\n")[0].replace("``", "`")
            rows.append([str(code), f"`{each.__name__}`", meaning])
    rows.append(["130", "", "Ctrl-C; in a learner or closer only the second one."])
    rows.append(["143", "", "SIGTERM; in a learner or closer only the second one."])
    return table(["exit code", "error", "meaning"], rows)


def commands() -> str:
    return "\n".join(map(_command, typer.main.get_command(app).commands.items()))


def _command(named: tuple[str, Any]) -> str:
    name, command = named
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([f"gradientmail {name}", *(p.metavar for p in arguments), "[OPTIONS]"])
    rows = [[f"`{p.metavar}`", _help(p)] for p in arguments]
    rows += [
        [f"`{' '.join([*p.opts, p.metavar or '']).strip()}`", _help(p)]
        for p in command.params
        if p.param_type_name == "option" and p.help
    ]
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    return f"## {name}\n\n    {usage}\n\n{text}\n\n{table(['argument', 'meaning'], rows)}"


def _help(parameter: Any) -> str:
    text = parameter.help.replace("\\[", "[")
    flag = parameter.param_type_name == "option"
    return f"{text} Required." if flag and parameter.required else text


PARTS: Mapping[str, Callable[[], str]] = {
    "run-settings": lambda: settings(RunSettings),
    "node-settings": lambda: settings(NodeSettings),
    "presets": presets,
    **{known.kind: (lambda known=known: choices(known)) for known in CHOICES.values()},
    "codecs": codecs,
    "limits": limits,
    "exit-codes": exit_codes,
    "commands": commands,
    **{kind.__name__: (lambda kind=kind: record(kind)) for kind in RECORDS},
}


# -- files ----------------------------------------------------------------------------------


def filled(text: str) -> str:
    """Return ``text`` with every generated part as the code now says."""

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- generated: {name} -->\n{PARTS[name]()}<!-- end -->"

    return MARKED.sub(part, text)


def main() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    stale = {path: new for path, old in pages.items() if (new := filled(old)) != old}
    if "--check" not in sys.argv:
        for path, text in stale.items():
            path.write_text(text, encoding="utf-8")
    elif stale:
        names = ", ".join(str(path.relative_to(DOCS.parent)) for path in stale)
        sys.exit(f"run scripts/docs: stale: {names}")


if __name__ == "__main__":
    main()
