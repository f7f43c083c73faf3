"""What RMSNorm is tested and timed on."""

from __future__ import annotations

import torch

from burnish_kernels.registry import Case

# Relative L2 error against the reference in double precision: a few units in the last place of the dtype.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}

SHAPES = ((1, 576), (7, 64), (13, 2560), (64, 16), (3, 1000), (5, 8192))


def cases() -> list[Case]:
    """Every shape, dtype, weight convention, with and without residual."""
    return [
        Case(
            name=f"{rows}x{hidden}-{str(dtype).removeprefix('torch.')}{'-residual' * residual}{'-1+w' * one_plus}",
            tolerance=TOLERANCE[dtype],
            options={"rows": rows, "hidden": hidden, "dtype": dtype, "residual": residual, "one_plus": one_plus},
        )
        for rows, hidden in SHAPES
        for dtype in TOLERANCE
        for residual in (False, True)
        for one_plus in (False, True)
    ]


def compare(case: Case, device: str, seed: int = 0) -> float:
    """Worst relative L2 error of output and gradients against the reference on upcast inputs.

    Args:
        case: One of `cases()`.
        device: Where the kernel runs.
        seed: Of the random inputs.
    """
    from burnish_kernels.rms_norm import op, reference

    options = case.options
    generator = torch.Generator().manual_seed(seed)
    shape, dtype = (options["rows"], options["hidden"]), options["dtype"]

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    x, weight, dy = draw(*shape), draw(shape[1]), draw(*shape)
    residual, dsum = (draw(*shape), draw(*shape)) if options["residual"] else (None, None)

    def results(function: object, cast: torch.dtype, where: str) -> list[torch.Tensor]:
        def put(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.to(where, cast)

        inputs = [put(tensor) for tensor in (x, residual)]
        leaves = [tensor.requires_grad_() for tensor in inputs if tensor is not None]
        y, total = function(  # type: ignore[operator]
            inputs[0], put(weight), eps=1e-5, residual_NH=inputs[1], one_plus_weight=options["one_plus"]
        )
        outputs, gradients = [y], [put(dy)]
        if residual is not None:
            outputs.append(total)
            gradients.append(put(dsum))
        return [*outputs, *torch.autograd.grad(outputs, leaves, gradients)]

    exact = results(reference.rms_norm, torch.float64, "cpu")
    found = results(op.rms_norm, dtype, device)
    return max(
        float((ours.detach().cpu().double() - theirs.detach()).norm() / theirs.detach().norm())
        for ours, theirs in zip(found, exact, strict=True)
    )
