"""Choose the matrices that get an adapter, and refuse recipes that miss some. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.coverage import BeyondLayers, Coverage, Matrix, count_coverage
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import ALL_LINEAR, AUTO, AdapterSection
from burnish_engine.models.families import family, layer_matrices
from burnish_engine.models.families.matrices import EMBEDDING, HEAD, ROUTER, TAKEN_FOR_EXPERTS, tables

_NEGLIGIBLE = 0.01  # share of the layers' weights: a smaller kind that no adapter fits, such as kernels, may be missed

_TABLES = frozenset({"embed_tokens", "lm_head"})
"""Last names of embedding and head in the families that the fast engine trains."""
_BY_MATRIX = frozenset({"muon", "adafactor"})
"""Optimizers whose step depends on which numbers make a matrix: PEFT, and so the plain engine, has all experts of a
layer in one."""


class StartedSection(AdapterSection):
    """An adapter section that a saved adapter's files decide. It is never written: recipes name the adapter alone.

    Attributes:
        folder: folder of the adapter's two files.
        shapes: shape of every tensor that is trained.
        modules: paths of the modules in which tensors are trained, in the model.
        beyond: what is trained beyond the layers' matrices.
        whole_matrix: a layer's matrix that is trained itself, which 4-bit weights do not allow; empty: there is none.
        obstacle: why the fast engine does not train it, completing "The adapter ..."; empty where it does.
    """

    folder: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    modules: tuple[str, ...] = ()
    beyond: tuple[BeyondLayers, ...] = ()
    whole_matrix: str = ""
    obstacle: str = ""

    @property
    def weights(self) -> int:
        """Number of trained weights."""
        return sum(map(math.prod, self.shapes))


def is_target(matrix: Matrix, targets: Sequence[str], *, inside: bool = True) -> bool:
    """Return whether a matrix gets an adapter.

    Args:
        matrix: matrix of the model.
        targets: `adapter.targets` of the recipe.
        inside: whether the matrix is in a decoder layer.
    """
    if matrix.form == "other":
        return False
    if matrix.kind in (EMBEDDING, HEAD):
        return any(has_name(matrix.name, target) for target in targets)
    if AUTO in targets:
        return inside and matrix.kind != ROUTER
    if ALL_LINEAR in targets:
        return matrix.form == "linear"
    return any(has_name(matrix.name, target) for target in targets)


def expert_rank(adapter: AdapterSection, slots: int) -> int:
    """Return the rank of each expert's adapter.

    Where the recipe gives none, it is the rank divided by the number of experts that a token visits: a token then
    passes about as many adapter weights as in a dense model of that rank, and all experts together stay within the
    memory of a card. With the full rank, the experts' adapters of Qwen3-30B-A3B would take 9.4 GiB with their moments.

    Args:
        adapter: the recipe's adapter section.
        slots: experts of a token; 0 where that is not known: then the rank is the recipe's.
    """
    return adapter.expert_rank or max(1, adapter.rank // max(slots, 1))


def why_plain_experts(spec: DecoderSpec | None, recipe: Recipe) -> str:
    """Return why only the plain engine trains a model's experts as a recipe says, as the first half of a sentence.

    Empty where the fast engine does, or where experts get no adapters.

    Args:
        spec: shape of the model; None where it is not known.
        recipe: recipe of the run.
    """
    optimizer = recipe.train.optimizer
    if spec is None or spec.experts is None or optimizer not in _BY_MATRIX:
        return ""
    if not any(one.kind == "experts" and one.reached for one in planned_coverage(spec, recipe.adapter).kinds):
        return ""
    return f"The fast engine does not train experts with {optimizer}, whose step depends on how they are stacked"


def why_plain_adapter(adapter: AdapterSection) -> str:
    """Return why only the plain engine trains an adapter, as the first half of a sentence; empty where not so.

    Args:
        adapter: adapter section of the recipe; where it continues from an adapter, as that one's files say.
    """
    if isinstance(adapter, StartedSection):
        why = adapter.obstacle
        return f"The adapter to continue from {why}, which the fast engine does not do" if why else ""
    named = [target for target in adapter.targets if target.rpartition(".")[2] in _TABLES]
    if adapter.method == "full" or not named:
        return ""
    return f"The adapter reaches {', '.join(named)}, which the fast engine does not do"


def planned_coverage(spec: DecoderSpec, adapter: AdapterSection) -> Coverage:
    """Count the matrices that a run's adapter will reach, from the model's specification."""
    if isinstance(adapter, StartedSection):
        return _started_coverage(spec, adapter)
    whole = adapter.method == "full"
    return count_coverage(
        (
            (matrix, whole or is_target(matrix, adapter.targets))
            for layer in spec.layers
            for matrix in layer_matrices(spec, layer)
        ),
        [] if whole else _adapted_beyond(spec, adapter),
    )


def _adapted_beyond(spec: DecoderSpec, adapter: AdapterSection) -> list[BeyondLayers]:
    """List the matrices outside of the layers that get an adapter, embedding and head among them."""
    weights: dict[str, int] = {}
    for matrix in (*spec.outside, *tables(spec)):
        if is_target(matrix, adapter.targets, inside=False):
            name = matrix.name.rpartition(".")[2]
            magnitudes = matrix.rows if adapter.method == "dora" else 0
            weights[name] = weights.get(name, 0) + adapter.rank * (matrix.rows + matrix.columns) + magnitudes
    return [BeyondLayers(name=name, how="adapter", weights=weights[name]) for name in sorted(weights)]


def _started_coverage(spec: DecoderSpec, adapter: StartedSection) -> Coverage:
    """Count the matrices that a saved adapter reaches, layer by layer."""
    reached = {tuple(path.split(".")) for path in adapter.modules}
    lengths = {len(path) for path in reached}
    ends = {path[-size:] for path in reached for size in range(1, max(lengths, default=0) + 1)}
    return count_coverage(
        (
            (matrix, (str(number), *matrix.name.split(".")) in ends)
            for number, layer in enumerate(spec.layers)
            for matrix in layer_matrices(spec, layer)
        ),
        adapter.beyond,
    )


def check_spec_targets(spec: DecoderSpec, adapter: AdapterSection) -> list[str]:
    """Call `check_targets` with the matrices of a specification."""
    inside = [matrix for layer in spec.layers for matrix in layer_matrices(spec, layer)]
    found = check_targets(inside, [*spec.outside, *tables(spec)], adapter)
    return [*found, *_unread_by_peft(spec, inside, adapter)]


def check_targets(inside: Sequence[Matrix], outside: Sequence[Matrix], adapter: AdapterSection) -> list[str]:
    """Refuse a recipe whose targets miss matrices of the model without saying so by name.

    Args:
        inside: matrices of all decoder layers.
        outside: other matrices, embedding and head among them.
        adapter: the recipe's adapter section.

    Returns:
        Sentences that a person should know.

    Raises:
        UsageError: No matrix has any of the names; or some names are not there while matrices stay without an adapter;
            or ["auto"] or ["all-linear"] reach nothing of a kind of layer; or the targets are fused experts, and the
            method or the dropout is none that PEFT has for them.
    """
    if adapter.method == "full":
        return []
    targets = adapter.targets
    chosen = [matrix for matrix in inside if is_target(matrix, targets)]
    beside = [matrix for matrix in outside if is_target(matrix, targets, inside=False)]
    names = last_names([matrix for matrix in (*inside, *outside) if matrix.form != "other"])
    if not chosen and not beside:
        raise UsageError(
            f"None of the adapter targets {targets} is a matrix of this model that gets adapters; it has {names}.",
            'Set adapter.targets to some of these, or to ["auto"].',
        )
    _check_stacked([matrix for matrix in (*chosen, *beside) if matrix.form == "stacked"], adapter)
    absent = absent_targets([*inside, *outside], targets)
    routers = [name for name in absent if any(one.kind == ROUTER and has_name(one.name, name) for one in inside)]
    absent = [name for name in absent if name not in routers]
    coverage = count_coverage((matrix, is_target(matrix, targets)) for matrix in inside)
    if absent or routers or AUTO in targets or ALL_LINEAR in targets:
        missed = _missed(inside, coverage, targets)
        if missed:
            raise UsageError(_refusal(targets, absent, routers, missed, coverage), _remedy(targets, names))
    notes = [f"Routers get no adapter: {', '.join(routers)} stays as it is."] if routers else []
    return [*notes, f"This model has no matrices named {', '.join(absent)}; they get no adapter."] if absent else notes


def absent_targets(matrices: Sequence[Matrix], targets: Sequence[str]) -> list[str]:
    """Return the target names that no matrix which can have an adapter has."""
    if AUTO in targets or ALL_LINEAR in targets:
        return []
    able = {matrix.name for matrix in matrices if matrix.form != "other"}
    return [target for target in targets if not any(has_name(name, target) for name in able)]


def last_names(matrices: Sequence[Matrix]) -> list[str]:
    """Return the last part of each matrix's name, once each, in order."""
    return list(dict.fromkeys(matrix.name.rpartition(".")[2] for matrix in matrices))


def has_name(path: str, name: str) -> bool:
    """Return whether a name matches a module's or parameter's path by PEFT's rule: the whole path or its last parts."""
    return path == name or path.endswith(f".{name}")


def _unread_by_peft(spec: DecoderSpec, inside: Sequence[Matrix], adapter: AdapterSection) -> list[str]:
    """Say that plain PEFT will not load the adapter, where dense layers of a mixture get DoRA or dropout."""
    known = family(spec.family)
    if known is None or not known.peft_converts or not (adapter.method == "dora" or adapter.dropout):
        return []
    names = {one.name.rpartition(".")[2] for one in inside if one.form == "linear" and is_target(one, adapter.targets)}
    if not names & TAKEN_FOR_EXPERTS:
        return []
    setting = 'adapter.method = "dora"' if adapter.method == "dora" else f"adapter.dropout = {adapter.dropout:g}"
    return [
        "PEFT 0.21 takes the dense layers of this mixture for experts, and then does not load an adapter with "
        f"{setting}: merge it (--to safetensors), or use it through Burnish."
    ]


def _check_stacked(stacked: Sequence[Matrix], adapter: AdapterSection) -> None:
    """Refuse adapters of fused experts other than plain LoRA, as PEFT does (`peft.tuners.lora.layer.ParamWrapper`)."""
    if not stacked or (adapter.method != "dora" and not adapter.dropout):
        return
    setting = 'adapter.method = "dora"' if adapter.method == "dora" else f"adapter.dropout = {adapter.dropout:g}"
    raise UsageError(
        f"The experts of this model are fused ({', '.join(last_names(stacked))}), and adapters on fused experts work "
        f"without {setting}.",
        'Set adapter.method = "lora" and adapter.dropout = 0, or leave the experts out: name other adapter.targets.',
    )


def _missed(inside: Sequence[Matrix], coverage: Coverage, targets: Sequence[str]) -> list[str]:
    """Return what stays without an adapter: whole kinds of layers; for names, matrices that could have one."""
    if AUTO in targets or ALL_LINEAR in targets:
        least = _NEGLIGIBLE * sum(one.weights for one in coverage.kinds)
        able = {matrix.kind for matrix in inside if matrix.form != "other"} - {ROUTER}
        missed = [one for one in coverage.kinds if one.kind != ROUTER and not one.reached]
        return [one.kind for one in missed if one.kind in able or one.weights > least]
    left = [m for m in inside if m.form != "other" and m.kind != ROUTER and not is_target(m, targets)]
    return last_names(left)


def _refusal(
    targets: Sequence[str], absent: Sequence[str], routers: Sequence[str], missed: Sequence[str], coverage: Coverage
) -> str:
    named = [f"{', '.join(absent)}, which this model does not have"] if absent else []
    named += [f"{', '.join(routers)}, which chooses experts and gets no adapter"] if routers else []
    what = f"adapter.targets names {', and '.join(named)}, and leaves out"
    if not named:
        what = f"adapter.targets = {list(targets)} reaches nothing of this model's"
    return f"{what} {', '.join(missed)}: the adapter would train {coverage.text}."


def _remedy(targets: Sequence[str], names: Sequence[str]) -> str:
    auto = "" if AUTO in targets else 'Set adapter.targets = ["auto"] to train all of it, or name'
    return f"{auto or 'Name'} exactly what shall be trained, of: {', '.join(names)}."
