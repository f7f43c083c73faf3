"""README, CONTRIBUTING, CHANGELOG and the guide: links lead somewhere, and commands, names and figures are right."""

import importlib.util
import re
import runpy
import shlex
import shutil
import tomllib
from functools import cache

import pytest
import typer.main
from pydantic import TypeAdapter

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.facts.gguf_rules import EXPORTED_FAMILIES
from burnish_engine.cli.command_line import app
from burnish_engine.cli.main import main
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import assets_dir
from burnish_engine.contract.recipe.recipe import sections
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.models.families import FAMILIES

from support.sources import FOLDERS, PACKAGES, ROOT, files

GUIDE = ROOT / "assets" / "guide"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(GUIDE.glob("*.md"))]
ARCHITECTURE = GUIDE / "architecture.md"
MOST_README_LINES = 180
MEASUREMENTS = runpy.run_path(str(ROOT / "tests" / "bench" / "__main__.py"))["scripts"]()
"""Files of the scripts that `python tests/bench` starts, by name."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", flags=re.MULTILINE)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


@cache
def text_of(page):
    return page.read_text(encoding="utf-8")


def prose(page):
    """A page without its code blocks."""
    return _FENCE.sub("", text_of(page))


def spans(page):
    """Inline code."""
    return _CODE.findall(prose(page))


def block_lines(page):
    """Lines of the code blocks that are no recipe."""
    for language, body in _FENCE.findall(text_of(page)):
        if language != "toml":
            yield from (line.removeprefix("$ ") for line in body.replace("\\\n", " ").splitlines())


def links(page):
    return [link for link in _LINK.findall(_CODE.sub("", prose(page))) if "://" not in link]


@cache
def anchors(page):
    """Names under which a page's headings are linked to, as GitHub makes them."""
    names = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose(page))]
    assert len(set(names)) == len(names), f"two headings of {page.name} have the same anchor"
    return set(names)


def words(line):
    """The words of a shell command without its environment variables and redirection; none where it is no command."""
    found = shlex.split(line, comments=True)
    found = found[: found.index(">")] if ">" in found else found
    while found and re.fullmatch(r"[A-Z_]+=.*", found[0]):
        del found[0]
    return found[3:] if found[:2] == ["env", "-u"] else found


def commands(page, *programs):
    """Commands in code blocks (True) and in running text and tables (False) that call one of the programs."""
    for line in block_lines(page):
        if line.startswith(programs) or re.match(r"[A-Z_]+=\S+ burnish ", line):
            yield words(line), True
    for span in spans(page):
        found = words(span) if re.match(r"[\w.=/ -]*(burnish|bash|python) ", span) else []
        if found and f"{found[0]} ".startswith(programs):
            yield found, False


@cache
def burnish():
    return typer.main.get_command(app)


def resolve(arguments):
    """The command that arguments of `burnish` name, its context's parent, its name, and what follows."""
    command, context, name = burnish(), None, "burnish"
    while hasattr(command, "commands") and arguments and arguments[0] != "--help":
        context = command.make_context(name, list(arguments), parent=context)
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
    return command, context, name, arguments


def table(page, heading):
    """Cells of the tables below a heading, row by row."""
    below = text_of(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|") and "---" not in line]
    assert rows, f"{page.name} has no table below {heading!r}"
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_the_readme_stays_short():
    assert len(text_of(ROOT / "README.md").splitlines()) <= MOST_README_LINES


@pages
def test_links_lead_to_files_and_headings(page):
    for link in links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


def test_the_guide_is_whole_in_the_package():
    """The wheel takes `assets` as `burnish_engine/assets`; only what lies in there can be linked to."""
    wheel = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"]["assets"] == "burnish_engine/assets"
    assert not {"exclude", "only-include"} & set(wheel)
    assert (assets_dir() / "guide").resolve() == GUIDE
    for page in GUIDE.glob("*.md"):
        for link in links(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            assert target.is_relative_to(ROOT / "assets"), f"{page.name} links to {link}, which is not installed"


def test_the_index_lists_every_page_once():
    listed = [link for link in links(GUIDE / "README.md") if link.endswith(".md") and not link.startswith("..")]
    assert sorted([*listed, "README.md"]) == sorted(page.name for page in GUIDE.glob("*.md"))


@pages
def test_pages_hold_no_html(page):
    assert re.findall(r"</?[A-Za-z][^>\n]*>", _CODE.sub("", prose(page))) == []


@pages
def test_commands_of_burnish_exist(page):
    """Those in code blocks have values of the right kind too; in running text and tables they may have placeholders."""
    for found, whole in commands(page, "burnish "):
        arguments = [re.sub(r"^\[|\]$|\.\.\.\]?$", "", word) for word in found[1:]]
        if arguments in (["ARGS"], ["--version"]):
            continue
        command, context, name, rest = resolve([word for word in arguments if word])
        if whole:
            assert rest is not None
            command.make_context(name, list(rest), parent=context)
        elif rest and rest != ["--help"]:
            command.make_parser(command.context_class(command, info_name=name)).parse_args(list(rest))


@pages
def test_scripts_and_modules_exist(page):
    for found, _ in commands(page, "bash ", "python ", ".venv/bin/python "):
        if found[1] == "-m":
            parts = found[2].split(".")
            here = [folder.joinpath(*parts) for folder in (ROOT, *(ROOT / source for source in FOLDERS))]
            ours = any(path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() for path in here)
            others = parts[0] not in {"tests", "burnish_app", "burnish_engine", "burnish_kernels"}
            assert ours or (others and importlib.util.find_spec(found[2])), found[2]
            continue
        script = ROOT / found[1]
        if found[1] == "tests/bench":
            script = MEASUREMENTS.get(found[2], script) if found[2:] else script / "__main__.py"
        assert script.is_file(), found[1:3]
        if script.suffix == ".py":
            known = text_of(script)
            for module in re.findall(r"^from (bench\.[\w.]+) import", known, flags=re.MULTILINE):
                known += text_of(ROOT / "tests" / f"{module.replace('.', '/')}.py")  # an option may be made there
            assert [word for word in found if word.startswith("--") and f'"{word}"' not in known] == []


def _runs_at_once(arguments):
    """Whether a test may run a command: it needs no model, and ends in a moment."""
    name, rest = resolve(arguments)[2:]
    return (
        name == "list"
        or (name, rest) == ("plan", [])
        or (arguments[0] in {"models", "recipe"} and name not in {"fetch", "radar"})
    )


@cache
def few_models():
    """A part of the catalog: each model of it takes a tenth of a second to judge."""
    return tuple(model for model in catalog() if "qwen3" in model.name.lower())[:4]


QUICK = sorted(
    {
        tuple(found[1:])
        for page in PAGES
        for found, whole in commands(page, "burnish ")
        if whole and _runs_at_once(found[1:])
    }
)


@pytest.mark.parametrize("arguments", QUICK, ids=" ".join)
def test_short_commands_run(arguments, tmp_path, monkeypatch, assets, capsys):
    monkeypatch.chdir(tmp_path)
    if arguments[0] == "models":
        few = few_models()
        monkeypatch.setattr("burnish_engine.advise.facts.catalog.catalog", lambda: few)
    shutil.copy(assets / "samples" / "bench-notes.train.jsonl", tmp_path / "conversations.jsonl")
    if arguments[:2] == ("recipe", "check"):
        assert main(["recipe", "new", arguments[-1]]) == ExitCode.DONE
        capsys.readouterr()
    ends = {ExitCode.DONE, ExitCode.DOES_NOT_FIT} if arguments == ("plan",) else {ExitCode.DONE}  # by what is free now
    assert main(list(arguments)) in ends
    assert capsys.readouterr().out.strip()


def test_all_commands_are_listed():
    def names(command, path):
        for name, below in getattr(command, "commands", {}).items():
            yield from names(below, (*path, name)) if hasattr(below, "commands") else [(*path, name)]

    listed = {resolve(found[1:])[0] for found, _ in commands(GUIDE / "command-line.md", "burnish ")}
    missing = [path for path in names(burnish(), ()) if resolve(list(path))[0] not in listed]
    assert missing == []


@pages
def test_recipes_and_their_keys_are_right(page):
    for language, body in _FENCE.findall(text_of(page)):
        if language == "toml":
            parse_recipe(body)
    known = sections()
    for span in spans(page):
        section, _, key = span.partition(" = ")[0].partition(".")
        if section in known and re.fullmatch(r"[a-z_0-9]+", key) and not span.endswith((".py", ".md", ".json")):
            assert key in known[section].model_fields, f"{page.name}: {span}"
            field = known[section].model_fields[key]
            if value := span.partition(" = ")[2]:
                TypeAdapter(field.annotation).validate_python(tomllib.loads(f"value = {value}")["value"])
        if re.fullmatch(r"\[[a-z_]+\]", span):
            assert span.strip("[]") in known, f"{page.name}: {span}"


def test_exit_codes_are_those_of_the_code():
    assert [int(row[0]) for row in table(GUIDE / "command-line.md", "Exit codes")] == [code.value for code in ExitCode]
    for page in PAGES:
        for code in re.findall(r"\bexit code\s+(\d+)", text_of(page)):
            assert int(code) in {known.value for known in ExitCode}, f"{page.name}: exit code {code}"


def test_environment_variables_are_those_of_the_code():
    used = {name for path in files() for name in re.findall(r"\b[A-Z][A-Z_]*[A-Z]\b", text_of(path))}
    rows = table(GUIDE / "command-line.md", "Environment variables")
    listed = {name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row[0])}
    assert not listed - used
    assert not {name for name in used if name.startswith("BURNISH_")} - listed


def without_placeholder(path):
    """The folder of a file that is still to be written, such as `models/families/NAME.py`; other paths as they are."""
    return re.sub(r"[^/]*\b(NAME|KEY)\b.*", "", path)


@pages
def test_named_files_are_there(page):
    """Paths in code style, from the checkout's root."""
    named = [
        without_placeholder(span)
        for span in spans(page)
        if re.fullmatch(r"(tests|assets|packaging|kernels|engine|app)/[\w./*-]+", span)
    ]
    assert [name for name in named if not list(ROOT.glob(name))] == []


def source_of(path):
    """The file or folder that the architecture page means: from the engine's package, else from the checkout's root."""
    here = re.match(r"(tests|assets|packaging|kernels|app)/|engine/burnish_engine/|pyproject\.toml", path)
    return ROOT / path if here else ROOT / "engine" / "burnish_engine" / path


def test_every_file_that_the_architecture_names_is_there():
    named = {
        without_placeholder(span)
        for span in spans(ARCHITECTURE)
        if re.fullmatch(r"[\w.]+/[\w./]*", span) and span.endswith((".py", ".toml", ".svg", "/"))
    }
    assert len(named) > 100
    assert sorted(name for name in named if not source_of(name).exists()) == []


def test_every_name_that_the_architecture_puts_behind_a_file_is_in_there():
    behind = re.findall(r"`([\w./]+\.py)` \((`[^)]+`)\)", prose(ARCHITECTURE))
    behind += [(row[1].partition("`")[2].partition("`")[0], row[0]) for row in table(ARCHITECTURE, "Forms of a batch")]
    missing = [
        f"{file}: {name}"
        for file, names in behind
        for name in _CODE.findall(names)
        if not re.search(rf"^ *(def|class) {name}\b|^{name}\b.*=", text_of(source_of(file)), flags=re.MULTILINE)
    ]
    assert len(behind) > 20
    assert missing == []


def drawn_folders():
    """Folders of the architecture's tree from top to bottom, each below the one that it is in."""
    drawn, above = [], []
    for line in _FENCE.search(text_of(ARCHITECTURE))[2].splitlines():
        depth = len(line) - len(line.lstrip())
        above = [(indent, folder) for indent, folder in above if indent < depth]
        for name in re.match(r" *((?:[\w/]+/ ?)+)", line)[1].split():
            drawn.append((above[-1][1] if above else ROOT) / name)
        above.append((depth, drawn[-1]))
    return drawn


def test_the_architecture_draws_every_folder():
    """Its tree has all folders of the packages and no other."""
    packages = {file.parent for package in PACKAGES.values() for file in package.rglob("__init__.py")}
    others = {ROOT / name for name in ("packaging", "tests", "assets")}
    assert sorted(drawn_folders()) == sorted(packages | others)


def test_the_architecture_draws_folders_in_import_order():
    """A folder imports only those above it among its neighbors; kernels are grouped by topic instead."""
    place = {folder: number for number, folder in enumerate(drawn_folders())}
    wrong = set()
    for package in (PACKAGES["burnish_app"], PACKAGES["burnish_engine"]):
        for file in package.rglob("*.py"):
            for found in re.findall(rf"^ *from {package.name}\.([\w.]+) import", text_of(file), flags=re.MULTILINE):
                mine, theirs = file.relative_to(package).parts[:-1], found.split(".")
                same = next((n for n, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other), None)
                if same is None:
                    continue
                here, there = (package.joinpath(*path[: same + 1]) for path in (mine, theirs))
                if there.is_dir() and place[there] > place[here]:
                    wrong.add((here.name, "imports", there.name))
    assert wrong == set()


def test_families_are_those_of_the_code():
    rows = table(GUIDE / "models.md", "Families")
    listed = {row[0].strip("`"): (row[2] == "yes", row[3] == "yes") for row in rows if row[0].startswith("`")}
    assert {name for name, (_, exported) in listed.items() if exported} == EXPORTED_FAMILIES
    assert {name for name, (fast, _) in listed.items() if fast} == FAMILIES.keys()


@pytest.mark.parametrize("heading", ["How fast", "How faithful"])
def test_the_readmes_figures_are_an_excerpt_of_the_benchmarks(heading):
    lines = text_of(GUIDE / "benchmarks.md").splitlines()
    for name, *cells in table(ROOT / "README.md", heading):
        figures = re.findall(r"\d[\d,]*(?:\.\d+)?", " ".join(cells))
        assert figures
        assert any(
            f"| {name} |" in line and set(figures) <= set(re.findall(r"\d[\d,]*(?:\.\d+)?", line)) for line in lines
        ), name


def test_contributing_and_changelog_know_the_project():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    markers = {marker.partition(":")[0] for marker in project["tool"]["pytest"]["ini_options"]["markers"]}
    assert {row[0].strip("`") for row in table(ROOT / "CONTRIBUTING.md", "Test")} == markers
    assert project["project"]["version"] in text_of(ROOT / "CHANGELOG.md")
