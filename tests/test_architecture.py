"""The rules of the source tree, enforced: who may import whom, what stays free of torch, what each part has."""

import ast
import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from burnish_engine.contract.recipe.recipe import Recipe, sections
from burnish_engine.contract.recipe.recipe_section import setting_info
from burnish_engine.contract.run import events
from burnish_engine.contract.run.commands import Command
from burnish_engine.models.families import FAMILIES, gemma, granite
from burnish_kernels.registry import CAPABILITIES, OPS, ops

from support.sources import PACKAGES, ROOT, modules, source

# Part of the engine -> the parts it may import, besides itself.
ENGINE_MAY_IMPORT = {
    "contract": set(),
    "hardware": {"contract"},
    "install": {"contract"},
    "advise": {"contract", "hardware", "models", "scoring"},
    "html_page": {"contract"},
    "runs": {"contract"},
    "channel": {"contract"},
    "models": {"contract", "hardware"},
    "hub": {"contract", "models", "advise", "runs"},
    "scoring": {"contract"},
    "data": {"contract", "models", "hub", "scoring"},
    "chat": {"contract", "channel", "models", "data", "runs", "scoring"},
    "train": {"contract", "channel", "hardware", "models", "data", "runs", "advise", "scoring"},
    "bench": {"contract", "hardware", "models", "data", "advise", "train", "export"},
    "radar": {"contract", "models", "runs", "advise", "train", "export"},
    "duel": {"contract", "html_page", "hardware", "models", "data", "runs", "advise"},
    "export": {
        "contract",
        "html_page",
        "channel",
        "hardware",
        "models",
        "data",
        "runs",
        "advise",
        "chat",
        "hub",
        "scoring",
    },
    "remote": {"contract", "hardware", "models", "runs", "advise", "hub"},
    "service": {
        "scoring",
        "contract",
        "channel",
        "hardware",
        "models",
        "data",
        "runs",
        "advise",
        "chat",
        "train",
        "export",
        "duel",
        "hub",
        "remote",
    },
    "demo": {"contract", "html_page", "models", "data", "runs", "chat", "train", "export"},
    "cli": {
        "contract",
        "install",
        "html_page",
        "scoring",
        "hardware",
        "models",
        "data",
        "runs",
        "advise",
        "chat",
        "train",
        "export",
        "demo",
        "bench",
        "radar",
        "duel",
        "service",
        "hub",
        "remote",
    },
}
# Part -> its subfolders in import order: a module may import from its own subfolder and from those before it. "." is
# the part's own folder.
SUBFOLDERS = {
    "burnish_app": (
        "look", "state", "launch", "engine_setup", "engine", "wording", "curves", "comparison", "item_models", "recipe",
        "page_states", "widgets", "pages", ".",
    ),
    "burnish_app.state": ("saved", "."),
    "burnish_app.widgets": (
        "basic", "page", "activity", "charts", "export", "hardware", "model", "recipe", "runs", "rewards", "try_out",
        "data", "compare", "sweep", "duel", "guide", "engine",
    ),
    "burnish_engine.advise": ("facts", "predict", "plan", "suggest"),
    "burnish_engine.cli": (".", "machine", "prepare", "training", "results", "start"),
    "burnish_engine.contract": (".", "recipe", "facts", "run", "wording", "serve"),
    "burnish_engine.data": ("files", "rows", "sandbox", "templates", "tokens", "pipeline", "report", "."),
    "burnish_engine.duel": ("sides", "measures", "verdict", ".", "report"),
    "burnish_engine.export": ("base", "weights", "gguf", "quantize", "checks", "verify", ".", "destinations"),
    "burnish_engine.hardware": ("gpu", "host", "."),
    "burnish_engine.install": ("machine", "release", "files", "."),
    "burnish_engine.models": (
        "device", "families", "host_memory", "checkpoint", "saved_adapters", "decoder", "generation", "gguf",
        "transformers_path",
    ),
    "burnish_engine.models.families": ("rules", ".", "further"),
    "burnish_engine.remote": ("there", "bundle", "backends", "."),
    "burnish_engine.runs": (".", "jobs", "compare"),
    "burnish_engine.train": (
        "base", "reinforce", "optimizers", "fast", "lifecycle", "evaluation", "plain", "guard", "recovery", "exchange",
        "parallel", ".",
    ),
    "burnish_kernels": (
        ".", "adamw", "attention", "cross_entropy", "gather", "lora_linear", "eight_bit_linear", "nf4", "rms_norm",
        "rope", "head_gate", "short_conv", "conv_silu", "delta_rule", "gated_norm",
        "magma", "swiglu", "xielu", "paged_attention", "decode_linear", "sample", "moe_route", "moe_sort",
        "moe_unpack", "gguf_blocks", "grouped_linear", "grouped_codes", "grouped_skinny", "moe_act", "moe_combine",
        "mxfp8_linear",
    ),
}  # fmt: skip
MOST_MODULES = 15
"""Most modules of one folder, `__init__.py` not counted."""
TOP_LEVEL = {
    "app", "engine", "kernels", "assets", "tests", "packaging", "pyproject.toml", "README.md", "LICENSE",
    "CONTRIBUTING.md", "CHANGELOG.md",
}  # fmt: skip


def part_of(module):
    return module.split(".")[1] if "." in module else ""


def forbidden(module, name):
    """Whether a module must not import what has this name."""
    package, target = module.partition(".")[0], name.partition(".")[0]
    if package == "burnish_app":
        light = target not in {"torch", "triton", "transformers", "burnish_kernels"}
        ours = ("burnish_engine.contract", "burnish_engine.install")
        return not light or (target == "burnish_engine" and not name.startswith(ours))
    if package == "burnish_kernels":
        return target in {"burnish_app", "burnish_engine"}
    mine, theirs = part_of(module), part_of(name)
    if target == "burnish_engine" and mine and theirs:
        return mine != theirs and theirs not in ENGINE_MAY_IMPORT[mine]
    return target == "burnish_app"


def test_imports_point_in_the_allowed_direction():
    found = {
        module: [name for name in source(path).imports if forbidden(module, name)] for module, path in modules().items()
    }
    assert not {module: names for module, names in found.items() if names}


OTHER_NAMES = {
    "vocabulary.py", "pre_tokenizer.py", "tokenizer_files.py",  # llama.cpp's names of vocabularies
    "library.py", "data_text.py",  # names of chat templates
}  # fmt: skip
"""Files in which a word that is also a family's name means something else."""


def test_families_are_named_in_their_records_alone():
    """Besides, the checks of exported files name them, which are to be independent, and cases of kernels."""
    names = {name for known in FAMILIES.values() for name in (known.model_type, *known.wrappers)}
    quoted = re.compile(f"[\"'](?:{'|'.join(names | gemma.UNFUSED.keys() | granite.UNFUSED.keys())})[\"']")
    own = ("burnish_engine.models.families.", "burnish_engine.export.checks.")
    others = {
        module: path
        for module, path in modules().items()
        if not module.startswith(own) and path.name not in OTHER_NAMES | {"cases.py"}
    }
    assert len(others) > 500
    assert not {module: named for module, path in others.items() if (named := quoted.findall(source(path).text))}


def private_uses(path):
    """Names with an underscore that a file imports from another module of ours, or reads through it."""
    one = source(path)
    known = {name: full for name, full in one.imported.items() if full.split(".")[0] in PACKAGES}
    used = [*known.values(), *(f"{known[name]}.{read}" for name, read in one.private_reads if name in known)]
    return [name for name in used if "._" in name and ".__" not in name]


def test_no_module_uses_private_names_of_another():
    assert not {module: used for module, path in modules().items() if (used := private_uses(path))}


MOST_REACHED_INTO = 304
"""Private attributes of objects that tests still read or call. Lower it with each that goes; it never grows."""


def reached_into(path):
    """Private attributes that a file of tests uses of anything but the object or class that its own code belongs to."""
    attributes = (
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Attribute)
    )
    private = (node for node in attributes if node.attr.startswith("_") and not node.attr.startswith("__"))
    return [node.attr for node in private if getattr(node.value, "id", "") not in {"self", "cls"}]


def test_tests_reach_into_objects_ever_less():
    found = {path: used for path in (ROOT / "tests").rglob("test_*.py") if (used := reached_into(path))}
    total = sum(map(len, found.values()))
    assert total <= MOST_REACHED_INTO, f"{total} uses of private attributes: test what a thing does, not how"
    assert total > MOST_REACHED_INTO - 20, f"only {total} are left: lower MOST_REACHED_INTO"


def subfolder_of(module, part):
    """The subfolder of a module within a part; None for a module of another part or the part's own `__init__`."""
    inside = module.removeprefix(part + ".")
    if inside == module:
        return None
    subfolder, _, rest = inside.partition(".")
    folder = PACKAGES[module.split(".")[0]].joinpath(*part.split(".")[1:], subfolder)
    return subfolder if rest or folder.is_dir() else "."


@pytest.mark.parametrize("part", SUBFOLDERS)
def test_subfolders_import_only_those_before_them(part):
    order = SUBFOLDERS[part]
    for module, path in modules().items():
        mine = subfolder_of(module, part)
        if mine is None:
            continue
        assert mine in order, f"{module}: subfolder {mine} is not listed for {part}"
        for name in source(path).imports:
            theirs = subfolder_of(name, part) if name.startswith(part + ".") else None
            if theirs is None or theirs not in order:
                continue
            assert order.index(theirs) <= order.index(mine), f"{module} ({mine}) imports {name} ({theirs})"


def test_no_folder_holds_too_many_modules():
    counts = {}
    for path in modules().values():
        if path.name != "__init__.py":
            counts[path.parent] = counts.get(path.parent, 0) + 1
    assert not {str(folder): count for folder, count in counts.items() if count > MOST_MODULES}


def test_no_import_cycles_between_modules():
    """Counts every import, also those inside functions and those that only type checkers read."""
    names = set(modules())
    edges = {}
    for module, path in modules().items():
        found = set(source(path).imports) & names
        # `from package import module` reaches the module; the package's own file only hands names on.
        edges[module] = {name for name in found if not any(other.startswith(name + ".") for other in found)} - {module}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for target in sorted(edges[module]):
            visit(target)
        path.pop()
        done.add(module)

    for module in sorted(names):
        visit(module)


LIGHT = {
    "burnish_app", "burnish_engine.contract", "burnish_engine.hardware", "burnish_engine.advise", "burnish_engine.duel",
    "burnish_engine.hub", "burnish_engine.remote", "burnish_engine.cli",
}  # fmt: skip
"""Packages all of whose modules load no torch."""
LATE = (
    "transformers", "peft", "datasets", "pandas", "pyarrow", "huggingface_hub", "gguf", "bitsandbytes", "triton",
    "torch._dynamo", "torch._inductor", "sympy",
)  # fmt: skip
"""Libraries and compilers that training may do without."""


def loaded(order, watched):
    """Import modules one after the other in a new process; for each watched library that is loaded, the first at it."""
    code = (
        "import importlib, json, sys\n"
        f"order, watched, found = {list(order)}, {list(watched)}, {{}}\n"
        "for name in order:\n"
        "    importlib.import_module(name)\n"
        "    for library in watched:\n"
        "        if library in sys.modules: found.setdefault(library, name)\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_light_packages_leave_torch_out():
    """Importing every module of these packages, and the engine's and kernels' own, loads no heavy library."""
    light = [name for name in modules() if any(f"{name}.".startswith(f"{package}.") for package in LIGHT)]
    assert not loaded(["burnish_engine", "burnish_kernels", *light], ("torch", "triton", "transformers"))


def test_training_and_operations_start_without_libraries_that_they_may_not_need():
    """Operations load Triton only when one runs: the CPU way and the app's questions must do without it."""
    operations = [
        name for name, path in modules().items() if name.startswith("burnish_kernels.") and "kernel" not in path.stem
    ]
    assert not loaded(["burnish_engine.train.run", "burnish_engine.bench.step", *operations], LATE)


_SIZE_UNITS = (" GiB", " MiB", " GB", " MB")
_OWN_SIZES = {
    "burnish_engine.install.machine.setup_checks",  # runs before there is any package
    "burnish_engine.contract.units",
    "burnish_engine.advise.plan.calibrate",  # the key under which past runs of a device are kept
}


def _sizes_by_hand(texts):
    """Lines of f-strings that divide a number and write a unit of size behind it; rates such as GB/s are none."""
    for text in texts:
        for value, behind in pairwise(text.values):
            if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant):
                divided = any(isinstance(node, ast.Div) for node in ast.walk(value))
                unit = next((unit for unit in _SIZE_UNITS if behind.value.startswith(unit)), None)
                if divided and unit and not behind.value.startswith(f"{unit}/"):
                    yield text.lineno


def test_sizes_are_formatted_by_one_module():
    texts = {name: source(path).f_strings for name, path in modules().items() if name not in _OWN_SIZES}
    assert not {name: lines for name, given in texts.items() if (lines := list(_sizes_by_hand(given)))}


def test_source_roots_and_packaging_are_no_packages():
    for folder in ("app", "engine", "kernels", "packaging"):
        assert not (ROOT / folder / "__init__.py").exists()
        assert folder == "packaging" or not list((ROOT / folder).glob("*.py"))


def test_top_level_is_the_agreed_one():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_every_op_has_its_four_files_and_a_case():
    folder = PACKAGES["burnish_kernels"]
    assert {path.parent.name for path in folder.glob("*/op.py")} == set(OPS)
    for name, op in ops().items():
        for file in ("op.py", "kernel.py", "reference.py", "cases.py"):
            assert (folder / name / file).is_file(), f"{name} lacks {file}"
        assert op.cases()
        assert len({case.name for case in op.cases()}) == len(op.cases())
        # Triton's interpreter is too slow for large ones: something must be left for machines without a GPU.
        assert not all(case.gpu_only for case in op.cases())


@pytest.mark.parametrize("name", OPS)
def test_every_op_lists_what_is_compiled_ahead(name):
    compilations = ops()[name].compilations()
    assert compilations
    assert len({one.name for one in compilations}) == len(compilations)
    assert all(set(one.capabilities) <= set(CAPABILITIES) for one in compilations)


UNIT_WORDS = {"tokens": "tokens", "steps": "steps", "share": "share", "gib": "GiB"}


def test_every_recipe_field_has_help():
    for section, model in {"recipe": Recipe, **sections()}.items():
        for key, field in model.model_fields.items():
            assert field.description, f"{section}.{key}"
            assert field.description[0].isupper() or field.description.split(":")[0].islower(), f"{section}.{key}"


def test_every_number_of_a_recipe_has_its_unit():
    for section, model in sections().items():
        for key, field in model.model_fields.items():
            for word, unit in UNIT_WORDS.items():
                if field.annotation in (int, float) and (key.endswith("_" + word) or key.startswith(word + "_")):
                    assert setting_info(field).unit == unit, f"{section}.{key} needs the unit {unit}"


@pytest.mark.parametrize("event_class", events.Event.__args__[0].__args__, ids=lambda c: c.__name__)
def test_every_event_survives_json(event_class):
    values = {}
    for name, field in event_class.model_fields.items():
        if not field.is_required():
            continue
        kind = str(field.annotation)
        if "Literal" in kind:
            values[name] = field.annotation.__args__[0]
        else:
            samples = {"int": 3, "float": 1.5, "str": "é\n", "bool": True}
            values[name] = samples[field.annotation.__name__]
    event = event_class(**values, seq=7, t=12.5)
    line = event.model_dump_json()
    assert "\n" not in line
    assert events.parse_event(line) == event


def test_non_finite_numbers_survive_json_as_strings():
    step = events.StepDone(
        step=1, epoch=0.5, loss=float("nan"), learning_rate=1e-4, grad_norm=float("inf"), tokens=1,
        supervised_tokens=1, tokens_per_s=1, supervised_tokens_per_s=1, step_s=1, memory_bytes=1, eta_s=-float("inf"),
    )  # fmt: skip
    raw = json.loads(step.model_dump_json())
    assert (raw["loss"], raw["grad_norm"], raw["eta_s"]) == ("NaN", "Infinity", "-Infinity")
    again = events.parse_event(step.model_dump_json())
    assert again.loss != again.loss
    assert again.grad_norm == float("inf")


@pytest.mark.parametrize("name", Command.model_fields["name"].annotation.__args__)
def test_every_command_survives_json(name):
    command = Command(name=name, t=1.0)
    assert Command.model_validate_json(command.model_dump_json()) == command
