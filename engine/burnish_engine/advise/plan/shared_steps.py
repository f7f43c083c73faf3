"""Predicts the steps that several GPUs share: passes of each, and what sending between them takes. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.advise.facts.planned_run import PlannedRun
from burnish_engine.advise.facts.shape import BYTES_OF, parameters
from burnish_engine.advise.facts.trained_bytes import trained_parameters
from burnish_engine.advise.predict.plain.whole_model_memory import GATHERED_SHARE
from burnish_engine.contract.facts.advice import SharedSteps
from burnish_engine.contract.facts.machine import EdgeFacts, LinkKind, MachineFacts
from burnish_engine.contract.recipe.on_gpus import gpus_text
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.units import memory_size, short_time
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.hardware.gpu.interconnect import PASS_S, exchange_ms, is_slow_exchange, rounds_gradients
from burnish_engine.hardware.gpu.topology import topology

_LINKS: dict[LinkKind | None, str] = {
    "nvlink": "over NVLink",
    "pcie_p2p": "over PCIe",
    "pcie": "over PCIe",
    "host_staged": "through the host's memory",
    None: "at most: nothing is told of their links",
}

_SHARDED_LAYER_S = 0.0028
"""Time that sharing out a layer of a whole model adds to a pass, taken to be the same for any number of GPUs: 44 ms for
16 layers on two H200, 45 ms on two and on four H100 (tests/bench/LOG.md, 2026-11-27)."""


def shared_steps(run: PlannedRun, pass_s: float, pass_alone_s: float) -> SharedSteps | None:
    """Predict a step that several GPUs share, or several processes of one CPU; None where one device trains.

    The passes of a step are dealt by the GPUs' speeds. Adapters' gradients are added up once a step, after the passes;
    GPUs of several models exchange the weights too. The layers of a whole model are gathered, and their gradients added
    up, in each pass while others compute: the longer of the two counts, and what each layer takes to be shared out.

    Args:
        run: the run.
        pass_s: predicted time of a pass on the GPU that is planned for, or on the whole CPU, seconds.
        pass_alone_s: the same while no other GPU copies to or from host memory.
    """
    devices, count = run.recipe.devices, len(run.recipe.devices.gpus)
    accumulation = run.recipe.train.accumulation
    if not devices.shares or count < 2:
        return None
    paces = _paces(run)
    dealt = _dealt(accumulation, paces)
    passes, idle, alone_s = max(dealt), dealt.count(0), accumulation * pass_alone_s
    if not run.device.cuda:  # they share the cores too
        return SharedSteps(gpus=count, passes=passes, idle=idle, times=1.0, step_ms=1000 * alone_s)
    busy_s = max(share / pace for share, pace in zip(dealt, paces, strict=True)) * pass_s
    try:
        edge = topology(run.machine).slowest(devices.gpus)
    except KeyError:  # torchrun deals GPUs of several machines
        return SharedSteps(gpus=count, passes=passes, idle=idle, times=alone_s / busy_s, step_ms=1000 * busy_s)
    rounded = False
    if devices.strategy == "sharded":
        sent = _gathered_bytes(run) * passes
        exchange_s = sent * (count - 1) / count / (edge.gb_s * 1e9)
        step_s = max(busy_s, exchange_s) + passes * run.spec.num_layers * _SHARDED_LAYER_S
    else:
        sent, exchange_s, rounded = _added_up(run, passes, edge)
        exchange_s *= 2 if len(set(paces)) > 1 else 1
        step_s = busy_s + exchange_s
    return SharedSteps(
        gpus=count,
        passes=passes,
        idle=idle,
        times=alone_s / step_s,
        step_ms=1000 * step_s,
        exchange_ms=1000 * exchange_s,
        exchange_bytes=sent,
        link=edge.kind if run.machine.links else None,
        rounded=rounded,
        while_computing=devices.strategy == "sharded",
    )


def _paces(run: PlannedRun) -> list[float]:
    """Return the speed of each GPU that shares the run, as a multiple of that of the GPU that is planned for."""
    indices, gpu = run.recipe.devices.gpus, run.device.gpu(run.machine)
    known = {one.index: one for one in run.machine.gpus}
    gpus = [known[index] for index in indices if index in known]
    if gpu is None or len(gpus) < len(indices) or len({one.name for one in gpus}) == 1:
        return [1.0] * len(indices)
    return [gpu_rates(one).bf16_tflops / gpu_rates(gpu).bf16_tflops for one in gpus]


def _dealt(passes: int, paces: Sequence[float]) -> list[int]:
    """Deal passes of like cost, as `train.exchange.deal` does: each to the GPU that is done with it first."""
    dealt = [0] * len(paces)
    for _ in range(passes):
        dealt[min(range(len(paces)), key=lambda one: ((dealt[one] + 1) / paces[one], one))] += 1
    return dealt


def _added_up(run: PlannedRun, passes: int, edge: EdgeFacts) -> tuple[int, float, bool]:
    """Return the bytes of gradients sent in a step, how long that takes, s, and whether they are rounded."""
    devices, accumulation = run.recipe.devices, run.recipe.train.accumulation
    gradient = 4 * trained_parameters(run.spec, run.recipe.adapter)
    if devices.exact:  # each receives the gradients of all passes that others made
        sent = gradient * (accumulation - passes)
        return sent, sent / (edge.gb_s * 1e9), False
    whole_s = exchange_ms(run.machine, devices.gpus, gradient) / 1000
    is_slow = is_slow_exchange(run.machine, devices.gpus, whole_s, PASS_S * accumulation / len(devices.gpus))
    if not rounds_gradients(devices, run.device.precision, is_slow=is_slow):
        return gradient, whole_s, False
    return gradient // 2, whole_s / 2, True


def _gathered_bytes(run: PlannedRun) -> int:
    """Count the bytes of a whole model that are gathered in a pass, and those of its gradients that are added up."""
    gpu, weights = run.device.gpu(run.machine), parameters(run.spec)
    copy = weights * BYTES_OF[run.device.precision]
    stays = gpu is not None and copy < GATHERED_SHARE * gpu.vram_free_bytes
    return copy * (1 if stays else 2) + 4 * weights


def shared_problems(devices: DevicesSection, machine: MachineFacts) -> list[str]:
    """Explain why the GPUs of a recipe cannot share its steps on a machine; nothing where they can.

    Args:
        devices: section of the recipe.
        machine: facts of the machine.
    """
    if not devices.shares or len(devices.gpus) < 2 or devices.kind == "cpu" or not machine.gpus:
        return []
    known = {gpu.index: gpu for gpu in machine.gpus}
    missing = [index for index in devices.gpus if index not in known]
    if missing:
        there = gpus_text({index: gpu.name for index, gpu in known.items()})
        return [f"GPU {missing[0]} is to share the run; this machine has {there}. Name others in devices.gpus."]
    if machine.os.startswith("Windows"):
        return ["GPUs share a run over NCCL, which Windows does not have. Use WSL2, or one GPU."]
    names = {known[index].name: index for index in devices.gpus}
    found = " and ".join(f"GPU {index} ({name})" for name, index in names.items())
    if len(names) > 1 and (devices.exact or devices.strategy == "sharded"):
        what = "cannot train the bits of one (devices.exact)" if devices.exact else "cannot share a whole model out"
        return [f"{found} are of several models and {what}. Name alike ones in devices.gpus."]
    if len({gpu_rates(known[index]).bf16 for index in devices.gpus}) > 1:
        return [f"Of {found} not all compute in bf16, so they cannot share a run. Name others in devices.gpus."]
    return []


def shared_note(shared: SharedSteps | None) -> str:
    """Say how GPUs would share each step; empty where one trains."""
    if shared is None:
        return ""
    passes = f"{shared.passes} pass{'es' * (shared.passes > 1)}"
    if shared.exchange_ms is None:
        return f"{shared.gpus} processes share each step, with at most {passes} each.{_idle(shared)}"
    bits = " in bf16" if shared.rounded else ""
    meanwhile = ", while they compute" if shared.while_computing else ""
    return (
        f"{shared.gpus} GPUs share each step, with at most {passes} each: {shared.times:.2f} times as fast as one. Of "
        f"{short_time(shared.step_ms / 1000)} a step, sending {memory_size(shared.exchange_bytes)}{bits} between "
        f"them takes {short_time(shared.exchange_ms / 1000)} ({_LINKS[shared.link]}){meanwhile}.{_idle(shared)}"
    )


def _idle(shared: SharedSteps) -> str:
    if not shared.idle:
        return ""
    return f" {shared.idle} of them would have nothing to do: raise train.accumulation to {shared.gpus}."
