"""The documents say what the code says, their examples are accepted, and their links lead somewhere."""

from __future__ import annotations

import contextlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from msgspec import Struct
from msgspec.structs import fields

from tests import docs
from trainmon.cli import main as cli
from trainmon.cli.commands import COMMANDS
from trainmon.config import CHANNEL_TYPES, InvalidValue, Settings, ValueType, rules_of, table_of, toml, value_type
from trainmon.config.decode import decode

ROOT = docs.FOLDER.parent
WRITTEN = sorted([*ROOT.glob("*.md"), *docs.FOLDER.rglob("*.md"), ROOT / "tests/bench/results.md"])
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def fenced(language: str) -> list[tuple[str, str]]:
    """The blocks of a language in all documents."""
    return [
        (name(file), text)
        for file in WRITTEN
        for _, found, text in FENCED.findall(file.read_text())
        if found == language
    ]


# ---- the generated parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", docs.parts())
def test_a_page_says_what_the_code_says(page: str) -> None:
    text = (docs.FOLDER / page).read_text()
    assert docs.renewed(page, text) == text, f"docs/{page} differs; try: python -m tests.docs --write"


def test_the_usage_of_a_command_names_each_of_its_arguments() -> None:
    for command in COMMANDS.values():
        assert all(docs._parameter(one) for one in command.params), f"{command.name} has an argument without a name"


MADE = re.compile(r"<!-- (\w+): made by tests.docs -->.*?<!-- /\1 -->", re.DOTALL)


def test_a_page_fits_one_reading() -> None:
    written = {name(file): len(MADE.sub("", file.read_text())) for file in docs.FOLDER.rglob("*.md")}
    assert {page: size for page, size in written.items() if size > 10_000} == {}


@pytest.mark.parametrize("file", WRITTEN, ids=name)
def test_a_page_has_no_control_characters(file: Path) -> None:
    assert [line for line in file.read_text().split("\n") if not line.replace("\t", "").isprintable()] == []


def test_every_setting_has_its_meaning() -> None:
    texts = [make() for page in docs.parts().values() for make in page.values()]
    rows = [line.split(" | ") for text in texts for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 300
    assert [row[:2] for row in rows if len(row[-1].strip(" |")) < 2] == []


def test_a_page_without_its_part_is_refused() -> None:
    with pytest.raises(SystemExit) as caught:
        docs.renewed("reference/keys.md", "# empty\n")
    assert str(caught.value) == "reference/keys.md: there must be one <!-- keys: made by tests.docs --> part, not 0"


# ---- defaults --------------------------------------------------------------------------------------------------------

SAMPLES = ("(?P<step>\\d+)", "a", "/d", "https://h/", "1h", "lustre", ["a"])
TIMED = {"maintenance": 'at = "08:30"\n'}
"""A window needs one of two settings."""


def required(table: type[Struct], prefix: str = "") -> Iterator[str]:
    """The lines that a table must have: of each required setting the first sample that it takes."""
    for field in fields(table):
        inner, _ = table_of(field.type)
        if inner is not None:
            yield from required(inner, f"{prefix}{field.encode_name}.")
        elif field.required and field.name != "type":
            kind = value_type(field.type)
            yield f"{prefix}{field.encode_name} = {toml(next(each for each in SAMPLES if is_taken(kind, each)))}\n"


def is_taken(kind: ValueType, sample: object) -> bool:
    with contextlib.suppress(InvalidValue):
        kind.parse(sample)
        return True
    return False


def settings(text: str) -> Settings:
    found, problems = decode(tomllib.loads(text), "pasted.toml")
    assert found is not None, (text, problems)
    return found


def config_defaults() -> Iterator[tuple[str, str]]:
    """A table with what it requires, and each line that its documentation says is the default."""
    tables = {field.encode_name: table_of(field.type)[0] for field in fields(Settings)}
    for section in re.split(r"^### ", docs.config(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        header = title.strip("`") if title.startswith("`") else ""
        name = header.strip("[]")
        head = f"{header}\n{TIMED.get(name, '')}{''.join(required(tables[name] or Struct)) if header else ''}"
        for setting, default in re.findall(r"^\| `([\w.-]+)` \| `(.+?)` \|", text, re.MULTILINE):
            yield head, f"{setting} = {default}"


def rule_defaults() -> Iterator[tuple[str, str]]:
    text = docs.rules()
    for rule, for_, keep in re.findall(r"^\| `([\w-]+)` \|.*\| `(\S+)` \| `(\S+)` \|", text, re.MULTILINE):
        head = f'[[rule]]\ntype = "{rule}"'
        yield from ((head, f"for = {for_}"), (head, f"keep_firing_for = {keep}"), (head, "enabled = true"))
    for rule, setting, default in re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| `(.+?)` \|", text, re.MULTILINE):
        yield f'[[rule]]\ntype = "{rule}"', f"{setting} = {default}"


def channel_defaults() -> Iterator[tuple[str, str]]:
    common, *own = re.split(r"^### ", docs.channels(), flags=re.MULTILINE)[1:]
    for (kind, table), section in zip(CHANNEL_TYPES.items(), own, strict=True):
        for setting, default in re.findall(r"^\| `(\w+)` \| `(.+?)` \|", common + section, re.MULTILINE):
            yield f'[[notify]]\ntype = "{kind}"\n{"".join(required(table))}', f"{setting} = {default}"


def test_a_printed_default_is_what_the_config_accepts_and_what_holds_without_it() -> None:
    pasted = [*config_defaults(), *channel_defaults()]
    assert len(pasted) > 40
    different = [line for table, line in pasted if settings(f"{table}\n{line}") != settings(table)]
    assert different == []


def test_a_printed_default_of_a_rule_is_the_one_that_holds_without_it() -> None:
    pasted = [*rule_defaults()]
    assert len(pasted) > 200
    assert [
        (table, line)
        for table, line in pasted
        if rules_of(settings(f"{table}\n{line}").rules) != rules_of(settings(table).rules)
    ] == []


# ---- what is written by hand -----------------------------------------------------------------------------------------


def test_every_toml_example_is_accepted() -> None:
    blocks = fenced("toml")
    assert len(blocks) > 5
    refused = {(file, text): decode(tomllib.loads(text), file)[1] for file, text in blocks}
    assert {where: problems for where, problems in refused.items() if problems} == {}


def test_every_command_line_in_an_example_is_accepted() -> None:
    lines = [re.split(r" +[#>] ", line)[0] for _, text in fenced("sh") for line in text.splitlines()]
    called = [shlex.split(line)[1:] for line in lines if line.startswith("trainmon-tui")]
    assert len(called) > 15
    for argv in called:
        command, rest = cli.route(argv)
        try:
            COMMANDS[command].make_context(command, rest)
        except click.ClickException as error:
            pytest.fail(f"trainmon-tui {shlex.join(argv)}: {error.message}")


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(file: Path) -> list[str]:
    """The relative links of a page, without those in its blocks of code."""
    text = FENCED.sub("", file.read_text())
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


@pytest.mark.parametrize("file", WRITTEN, ids=name)
def test_every_link_leads_somewhere(file: Path) -> None:
    lost = []
    for target in links(file):
        path, _, anchor = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        text = FENCED.sub("", there.read_text()) if anchor and there.is_file() else ""
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        if not there.exists() or (anchor and anchor not in map(slug, headings)):
            lost.append(target)
    assert lost == []


PATHS = re.compile(r"`((?:trainmon|collectors|tui|tests|docs|screenshots)/[^`\s:]*)")
EXAMPLES = re.compile(r"NAME|[*{<…]|nodes/test_load\.py$")
"""Paths of the recipes: files that somebody will add."""


@pytest.mark.parametrize("file", WRITTEN, ids=name)
def test_every_path_that_a_page_names_is_there(file: Path) -> None:
    named = {path for path in PATHS.findall(file.read_text()) if not EXAMPLES.search(path)}
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("package", ["trainmon/analysis", "trainmon/model"])
def test_the_table_of_packages_names_all_that_is_in_these(package: str) -> None:
    (row,) = re.findall(rf"^\| `{package}/` \|.*", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    there = {path.name for path in (ROOT / package).iterdir() if not path.name.startswith("__")}
    assert there == {name.strip("/") for name in re.findall(r"`([a-z_]+(?:\.py|/))`", row)}


def test_every_page_is_reached_from_the_readme_and_from_the_index() -> None:
    linked = {file: {(file.parent / target.partition("#")[0]).resolve() for target in links(file)} for file in WRITTEN}
    assert set(docs.FOLDER.rglob("*.md")) - linked[docs.FOLDER / "index.md"] == {docs.FOLDER / "index.md"}
    assert {*ROOT.glob("[A-Z]*.md"), docs.FOLDER / "index.md"} - linked[ROOT / "README.md"] == {ROOT / "README.md"}


def test_the_package_is_described_as_in_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"# trainmon-tui\n\n**{project['description']}**\n" in (ROOT / "README.md").read_text()


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_bytes()
    assert len(text.splitlines()) <= 250
    assert len(text) <= 16 * 1024
