"""The documents say what is: links lead somewhere; commands, options, phases and ports are the code's."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest

import autarky
from autarky import control
from autarky.agents.node import agent as node_agent
from autarky.agents.node import wiring as node_wiring
from autarky.agents.operator import wiring as operator_wiring
from autarky.cli.main import cli
from autarky.control.base.controller import Controller
from autarky.control.control_nodes.decide import procedure
from autarky.model import levels, ports
from autarky.model.components import MOVED
from autarky.workflows.up import PHASES
from unit.docs.documents import ROOT, anchors, blocks, documents, links, spans, table_rows

each_document = pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
ARCHITECTURE = ROOT / "docs/architecture.md"


# --- links ----------------------------------------------------------------------------------------


@each_document
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(document):
    for target in links(document):
        if re.match("https?://", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        assert path.is_relative_to(ROOT), f"{target} is not in the repository"
        assert not anchor or anchor in anchors(path), target


def test_the_index_links_every_document():
    linked = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in links(ROOT / "docs/README.md")}
    assert {path for path in ROOT.glob("docs/*.*") if path.name != "README.md"} <= linked


def test_the_index_of_decisions_links_each_of_them():
    index = ROOT / "docs/decisions/README.md"
    linked = {(index.parent / target).resolve() for target in links(index)}
    assert {path for path in index.parent.glob("*.md") if path != index} == linked


DECISIONS = sorted(ROOT.glob("docs/decisions/[0-9]*.md"))
each_decision = pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)


def test_there_are_decisions():
    assert DECISIONS


@each_decision
def test_a_decision_has_context_options_choice_and_measurement(decision):
    parts = re.findall(r"^\*\*(\w+)\.\*\*", decision.read_text(), re.MULTILINE)
    assert parts in (needed := ["Context", "Options", "Choice", "Measurement"], [*needed, "Result"])


@each_decision
def test_a_measurement_has_date_and_machine_or_says_why_there_is_none(decision):
    measured = decision.read_text().partition("**Measurement.** ")[2].partition("**Result.**")[0]
    dated = re.search(r"\b20\d\d-\d\d-\d\d\b", measured) and re.search(r"\b\d+ cores\b", measured)
    assert dated or measured.startswith("Not measured, because ")


def rendering() -> list[Path]:
    """All modules that say what components are given."""
    there = [path for path in ROOT.glob("src/autarky/**/*.py") if {"render", "manifests"} & {*path.parts, path.stem}]
    assert len(there) > 20
    return there


# --- commands and options -------------------------------------------------------------------------


@each_document
def test_every_command_that_is_named_exists_with_its_options(document):
    wrong = [problem for command in commands(document) if (problem := what_is_wrong(command))]
    assert wrong == []


@each_document
def test_every_option_that_is_named_alone_is_one_of_ours_or_one_that_a_component_is_given(document):
    given = "".join(path.read_text() for path in rendering())
    named = {match[1] for span in spans(document) if (match := re.match(r"(--[a-z][-a-z]+)", span))}
    assert not [name for name in named - all_options() if f'"{name[2:]}"' not in given]


@each_document
def test_every_run_command_that_is_named_exists(document):
    labels = re.findall(r"^([-a-z| ]+)\)$", (ROOT / "run").read_text(), re.MULTILINE)
    known = {name for label in labels for name in label.split(" | ")}
    named = [match for text in code(document) for match in re.findall(r"\./run ([a-z-]+)(?: ([a-z_0-9]+))?", text)]
    assert {command for command, _ in named} <= known
    assert {name for command, name in named if command == "bench" and name} <= {p.stem for p in ROOT.glob("bench/*.py")}


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ("autarky jump", "autarky has no command jump"),
        ("autarky lab jump", "lab has no command jump"),
        ("autarky up --quietly", "up has no option --quietly"),
        ("autarky bench probe -- autarky up --quietly", "up has no option --quietly"),
        ("autarky -q up", "autarky has no option -q"),
    ],
)
def test_a_wrong_command_would_be_found(wrong, reported):
    assert [problem for command in invocations(wrong) if (problem := what_is_wrong(command))] == [reported]


@pytest.mark.parametrize(
    "good",
    [
        "autarky kubectl -n kube-system scale deploy/coredns --replicas=3",
        "autarky bench probe --duration 5m -o json -- kubectl rollout restart …",
        "autarky -v up --cluster NAME --skip=pivot",
        "autarky … | head -1",
        "source <(autarky completion bash)",
        "autarky up --help",
    ],
)
def test_a_good_command_is_not_taken_for_a_wrong_one(good):
    assert [what_is_wrong(command) for command in invocations(good)] == [None]


def code(document: Path) -> Iterator[str]:
    """Every line of code and every span of it."""
    for block in blocks(document):
        if block.language not in {"yaml", "python"}:
            yield from re.sub(r"\s+# .*", "", block.text).replace("\\\n", " ").splitlines()
    yield from spans(document)


def commands(document: Path) -> Iterator[list[str]]:
    for text in code(document):
        yield from invocations(text)


def invocations(text: str) -> Iterator[list[str]]:
    """The words after each `autarky` that a shell would run."""
    for match in re.finditer(r"(?:^|[\s(/])autarky(?= )([^|;<>)]*)", text):
        yield re.split(r"\bautarky ", match[1])[0].split()
    for nested in re.findall(r" -- (autarky .*)", text):
        yield from invocations(nested)


def what_is_wrong(words: Sequence[str]) -> str | None:
    """The first word that the command line would not understand; None when there is none."""
    command: click.Command = cli
    rest = iter(words)
    for word in rest:
        if word in {"…", "--"}:
            return None
        if word.startswith("-"):
            option = options_of(command).get(word.partition("=")[0])
            if option is None:
                return None if passes_options_on(command) else f"{called(command)} has no option {word}"
            if takes_a_value(option) and "=" not in word:
                next(rest, None)
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"{called(command)} has no command {word}"
            command = found
        elif not command.allow_interspersed_args:
            return None
    return None


def called(command: click.Command) -> str:
    return "autarky" if command is cli else str(command.name)


def options_of(command: click.Command) -> dict[str, click.Parameter]:
    parameters = command.get_params(click.Context(command))
    return {name: p for p in parameters if isinstance(p, click.Option) for name in (*p.opts, *p.secondary_opts)}


def takes_a_value(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and not option.is_flag and not option.count


def passes_options_on(command: click.Command) -> bool:
    """To another program, which knows its own."""
    return bool(command.context_settings.get("ignore_unknown_options"))


def all_options() -> set[str]:
    return {name for command in all_commands(cli) for name in options_of(command)}


def all_commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from all_commands(found)


# --- what else is counted and numbered ------------------------------------------------------------


def test_the_phases_are_those_of_up():
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", ARCHITECTURE.read_text(), re.MULTILINE)
    assert rows == [(str(number), phase.name) for number, phase in enumerate(PHASES, 1)]


@each_document
def test_the_number_of_phases_is_that_of_up(document):
    counted = re.findall(r"\[\d+/(\d+)\]|\b(\d+) phases", document.read_text())
    assert {int(left or right) for left, right in counted} <= {len(PHASES)}


def test_the_ports_are_those_of_the_code():
    table = ARCHITECTURE.read_text().partition("| port | what | where |\n")[2].partition("\n\n")[0]
    documented = {int(number) for row in table.splitlines() for number in re.findall(r"\d{4,}", row.split("|")[1])}
    assert documented == ports.ON_HOSTS


def test_the_tree_of_the_code_is_that_of_the_package():
    tree = ARCHITECTURE.read_text().partition("src/autarky/\n")[2].partition("```")[0]
    named = [re.match(r"  ((?:[\w.]+/? )+)", f"{line} ") for line in tree.splitlines()]
    documented = {one.rstrip("/") for found in named if found for one in found[1].split()}
    package = Path(autarky.__file__).parent
    there = {path.name for path in package.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert documented == there - {"__pycache__", "__init__.py", "__main__.py"}


def test_the_table_of_subjects_is_that_of_the_folders():
    table = ARCHITECTURE.read_text().partition("| subject | what it is about |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:])))
    control = Path(autarky.__file__).parent / "control"
    assert documented == {path.name for path in control.iterdir() if path.is_dir() and path.name != "__pycache__"}


CONTROLLER_HEAD = "controller | subject | run by | what it does"


def test_the_table_of_controllers_is_that_of_the_code():
    rows = {name: row.split(" | ")[1:3] for name, row in table_rows(ARCHITECTURE, CONTROLLER_HEAD).items()}
    assert {name: subject for name, (subject, _) in rows.items()} == {
        one.__name__: f"`{subject_of(one)}`" for one in controllers()
    }
    assert {name: agent for name, (_, agent) in rows.items()} == {one.__name__: run_by(one) for one in controllers()}


def controllers(base: type[Controller] = Controller) -> Iterator[type[Controller]]:
    for module in pkgutil.walk_packages(control.__path__, f"{control.__name__}."):
        import_module(module.name)
    for one in base.__subclasses__():
        yield from controllers(one)
        if one.__module__.startswith("autarky.") and not inspect.isabstract(one):
            yield one


def subject_of(controller: type[Controller]) -> str:
    return "slots" if controller is node_agent.NodeAgent else controller.__module__.split(".")[2]


def run_by(controller: type[Controller]) -> str | None:
    """By the wirings; None where no agent makes one."""
    name = controller.__name__
    if name in made_by([operator_wiring], "Operator"):
        return "operator"
    if name in made_by([node_wiring], "_act_on_worker"):
        return "node agent"
    return "node agent, control nodes" if name in made_by([node_wiring, node_agent], "_act_on_control_node") else None


def made_by(modules: Sequence[ModuleType], entry: str) -> set[str]:
    """The names of what a function or a class calls, and of what those of these modules call that it calls."""
    bodies = [part for module in modules for part in ast.parse(inspect.getsource(module)).body]
    calls = {
        part.name: {called_name(call.func) for call in ast.walk(part) if isinstance(call, ast.Call)}
        for part in bodies
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found: set[str] = set()
    new = {entry}
    while new:
        found |= new
        new = {name for one in new for name in calls.get(one, ())} - found
    return found


def called_name(function: ast.expr) -> str:
    """A function's or a class's, also that of another module; a method of something has none here."""
    if isinstance(function, ast.Attribute) and function.attr[0].isupper():
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_the_steps_of_control_nodes_are_those_of_the_code():
    assert procedure.table() in (ROOT / "docs/control-nodes.md").read_text()


def test_the_readme_names_every_choice_of_hosted_levels():
    listed = re.search(r"`selfHosted` ((?:[\d-]+(?:, | and )?)+)", (ROOT / "README.md").read_text())
    assert listed is not None
    assert re.findall(r"[\d-]+", listed[1]) == list(levels.TEXTS)


def test_the_table_of_two_slots_has_every_component_that_has_two():
    table = ARCHITECTURE.read_text().partition("| component | hosted slot | standby slot |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    with_two = {
        name for names, *slots, _ in rows if not any("none" in slot for slot in slots) for name in names.split(", ")
    }
    assert with_two == {name.removeprefix("kube-").replace("apiserver", "API server") for name in MOVED}
