"""One step over preferences against TRL's trainers, on both engines: loss, figures and every adapter gradient.

The model is tiny, in fp32 and without dropout, and the adapter is not new, so that replies are far from their
reference, which is the base model. TRL's side is its own trainer: `data_collator` makes the batch, `compute_loss` the
loss, and autograd the gradients. Its token ids are ours; that texts become the same ids shows in `test_against_trl`.
Seeds are such that pairs differ in sign, the divergence is above zero, and no mean is so near zero that only rounding
is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.pack import micro_batch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.preference import figures_of
from burnish_engine.train.plain.plain_step import sequence_log_probs
from burnish_engine.train.plain.preference_step import StepCounts, estimate_kl, preference_loss

from support.models import parity, tiny_models
from support.runs.preferences import fast_step

trl = pytest.importorskip("trl")
CLOSE = 1e-5
CPU = torch.device("cpu")
REPLIES = ((9, 17), (6, 5), (28, 4))
"""Tokens of the chosen and the rejected reply of each pair."""
PROMPTS = (3, 5, 2)


def ids(random, count):
    return random.integers(4, 200, count).tolist()


@dataclass
class Replies:
    """The same rows as TRL's collators take them, and as documents of ours."""

    examples: list[dict[str, object]]
    documents: list[Document]


def paired(*, swapped=False):
    random, examples, documents = np.random.default_rng(4), [], []
    for prompt_tokens, (chosen_tokens, rejected_tokens) in zip(PROMPTS, REPLIES, strict=True):
        prompt, chosen, rejected = (ids(random, count) for count in (prompt_tokens, chosen_tokens, rejected_tokens))
        if swapped:
            chosen, rejected = rejected, chosen
        sides = {"chosen": prompt + chosen, "rejected": prompt + rejected}
        example = {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
        for side, text in sides.items():  # the names of the older trainers' collator
            example |= {f"{side}_input_ids": text, f"{side}_attention_mask": [1] * len(text)}
            example[f"{side}_labels"] = [-100] * len(prompt) + text[len(prompt) :]
        examples.append(example)
        supervised = [index >= len(prompt) for text in sides.values() for index in range(len(text))]
        whole = np.array(sides["chosen"] + sides["rejected"], dtype=np.int32)
        documents.append(Document(whole, np.array(supervised), 1, "", rejected_from=len(sides["chosen"])))
    return Replies(examples, documents)


def labeled():
    """Five replies, every one after its own prompt.

    TRL takes the mismatched reply from the row before within a batch, here it is that of all rows: with one batch and
    prompts that differ both are the same, which `one_step` asserts.
    """
    random, examples, documents = np.random.default_rng(7), [], []
    for prompt_tokens, reply_tokens, good in zip((4, 2, 5, 3, 6), (9, 14, 4, 21, 7), (1, 0, 1, 1, 0), strict=True):
        prompt, reply = ids(random, prompt_tokens), ids(random, reply_tokens)
        examples.append({"prompt_ids": prompt, "completion_ids": reply, "label": bool(good)})
        supervised = np.arange(len(prompt + reply)) >= len(prompt)
        whole = np.array(prompt + reply, dtype=np.int32)
        documents.append(Document(whole, supervised, 1, "", desirable=bool(good)))
    for example, before in zip(examples, [examples[-1], *examples[:-1]], strict=True):  # as TRL's trainer does
        example["KL_completion_ids"] = before["completion_ids"]
    return Replies(examples, documents)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folders of a tiny model with a tokenizer, and of an adapter whose B is not zero."""
    folder = tmp_path_factory.mktemp("trl")
    base = tiny_models.make("qwen3", folder / "base", tokenizer=True)
    return base, tiny_models.lora(base, folder / "adapter", rank=5, alpha=96, seed=6)


def made_trainer(tiny, folder, kind, settings):
    """TRL's trainer of one kind on a fresh model; its own rows are only what its constructor asks for."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    options = {
        "output_dir": str(folder), "use_cpu": True, "report_to": [], "bf16": False, "gradient_checkpointing": False,
        "max_length": 64, "disable_dropout": True,
    }  # fmt: skip
    rows = [{"prompt": "Lamp?", "chosen": " Yes.", "rejected": " No."}]
    more = {}
    if kind == "orpo":
        from trl.experimental.orpo import ORPOConfig as Config
        from trl.experimental.orpo import ORPOTrainer as Trainer
    elif kind == "cpo":
        from trl.experimental.cpo import CPOConfig as Config
        from trl.experimental.cpo import CPOTrainer as Trainer
    else:
        Config, Trainer = (trl.KTOConfig, trl.KTOTrainer) if kind == "kto" else (trl.DPOConfig, trl.DPOTrainer)
        more["ref_model"] = parity.peft(tiny[0])  # without one, the reference is the adapter as it was given
    if kind == "kto":
        rows = [{"prompt": "Lamp?", "completion": " Yes.", "label": label} for label in (True, False)]
    return Trainer(
        model=parity.peft(*tiny),
        args=Config(**options, **settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(tiny[0]),
        **more,
    )


@dataclass
class Case:
    """A recipe's section, and the kind and settings of TRL's trainer that mean the same."""

    section: PreferenceSection
    kind: str
    settings: dict[str, object]

    @classmethod
    def of(cls, kind, settings, **section):
        objective = "simpo" if kind == "cpo" else kind
        shared = {name: section[name] for name in SHARED if name in section}
        return cls(PreferenceSection(objective=objective, **section), kind, shared | settings)

    def __str__(self):
        return "-".join([self.section.objective, *map(str, self.settings.values())])


SHARED = ("beta", "label_smoothing", "simpo_gamma", "desirable_weight", "undesirable_weight")
SIMPO = {"loss_type": "simpo"}
CASES = [
    Case.of("dpo", {"loss_type": ["sigmoid"]}, beta=0.3),
    Case.of("dpo", {"loss_type": ["ipo"]}, beta=0.3, loss_type="ipo"),
    Case.of("dpo", {"loss_type": ["hinge"]}, beta=0.3, loss_type="hinge"),
    Case.of("dpo", {"loss_type": ["robust"]}, beta=0.3, loss_type="robust", label_smoothing=0.2),
    Case.of("dpo", {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]}, beta=0.3, rpo_alpha=0.7),
    Case.of("kto", {"loss_type": "kto"}, beta=0.3, desirable_weight=1.3, undesirable_weight=0.7),
    Case.of("kto", {"loss_type": "apo_zero_unpaired"}, beta=0.3, loss_type="apo_zero_unpaired"),
    Case.of("orpo", {}, beta=0.3),
    Case.of("cpo", SIMPO | {"cpo_alpha": 0.0}, beta=2.0, simpo_gamma=0.8),
    Case.of("cpo", SIMPO | {"cpo_alpha": 0.6}, beta=2.0, rpo_alpha=0.6, label_smoothing=0.1),
]


@dataclass
class Step:
    """Loss, figures by their names here, and gradients by their names in PEFT's file."""

    loss: float
    figures: dict[str, float]
    gradients: dict[str, torch.Tensor]


NAMES = {
    "rewards/margins": "margin", "rewards/accuracies": "accuracy", "logps/chosen": "chosen_log_prob",
    "logps/rejected": "rejected_log_prob", "nll_loss": "sft_loss", "kl": "kl",
}  # fmt: skip


def their_step(tiny, folder, case, replies):
    """One step of TRL's trainer."""
    trainer = made_trainer(tiny, folder, case.kind, case.settings)
    batch = trainer.data_collator(replies.examples)
    model = trainer.model.train()
    loss, replaced = trainer.compute_loss(model, dict(batch)), None
    if case.kind == "orpo":
        whole, replaced = (chosen_cross_entropy(model, batch, prompts=prompts) for prompts in (True, False))
        loss = loss - whole + replaced
    loss.backward()
    trainer.log({"loss": float(loss.detach())})  # which adds the means of the figures
    logged = trainer.state.log_history[-1]
    figures = {name: float(logged[key]) for key, name in NAMES.items() if key in logged}
    if replaced is not None:
        assert figures["sft_loss"] == pytest.approx(float(whole.detach()), rel=CLOSE), (
            "TRL's orpo counts the prompt's tokens"
        )
        figures["sft_loss"] = float(replaced.detach())
    if case.kind == "cpo" and not case.section.rpo_alpha:
        del figures["sft_loss"]
    return Step(float(loss.detach()), figures, gradients_of(model))


def chosen_cross_entropy(model, batch, *, prompts):
    """Mean cross entropy of the chosen replies, with or without their prompts, by transformers."""
    mask = batch["chosen_attention_mask"]
    labels = batch["chosen_input_ids"].masked_fill(mask == 0, -100) if prompts else batch["chosen_labels"]
    logits = model(input_ids=batch["chosen_input_ids"], attention_mask=mask, use_cache=False).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def gradients_of(model):
    named = {parity.file_name(name): value for name, value in model.named_parameters() if value.requires_grad}
    return {name: value.grad.clone() for name, value in named.items()}


def our_batch(model, section, replies):
    """The rows as one pass that knows its reference, the base model; with the mismatched replies where needed."""

    def with_reference(documents):
        batch = micro_batch(documents, range(len(documents)))
        if not section.needs_reference:
            return batch
        with torch.no_grad(), model.disable_adapter():
            return replace(batch, reference=sequence_log_probs(model, batch, CPU, "padded").numpy())

    batch = with_reference(replies.documents)
    if not section.estimates_kl:
        return batch
    mismatched = MismatchedDocuments(replies.documents, 64)
    theirs = [example["prompt_ids"] + example["KL_completion_ids"] for example in replies.examples]
    assert [document.input_ids.tolist() for document in mismatched] == theirs
    return replace(batch, mismatched=(with_reference(mismatched),))


def our_step(tiny, engine, section, replies):
    """One step of an engine."""
    model = parity.peft(*tiny)
    batch = our_batch(model, section, replies)
    if engine == "fast":
        sums, gradients = fast_step(parity.fast(*tiny), section, [batch], batch.mismatched)
        loss, values = sums[0], sums[1:]
    else:
        kl = estimate_kl(model, [batch], budget=512, device=CPU, layout="padded") if section.estimates_kl else 0.0
        log_prob_S = sequence_log_probs(model, batch, CPU, "padded")
        loss, values = preference_loss(section, log_prob_S, batch, StepCounts.of(section, [batch], kl))
        loss.backward()
        gradients = gradients_of(model)
    figures = vars(figures_of(section, values.tolist()))
    return Step(float(loss.detach()), {name: one for name, one in figures.items() if one is not None}, gradients)


def same_step(found, wanted):
    """Whether two steps agree in all that both tell."""
    assert found.loss == pytest.approx(wanted.loss, rel=CLOSE)
    for name, value in wanted.figures.items():
        assert found.figures[name] == pytest.approx(value, rel=CLOSE, abs=1e-6), name
    assert all(float(value.norm()) > 0 for value in wanted.gradients.values())
    assert parity.worst(found.gradients, wanted.gradients) < CLOSE


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_is_that_of_trl(tiny, tmp_path, case):
    replies = labeled() if case.section.learns_labels else paired()
    wanted = their_step(tiny, tmp_path, case, replies)
    told = {"margin", "chosen_log_prob", "rejected_log_prob", "kl" if case.kind == "kto" else "accuracy"}
    assert told <= wanted.figures.keys()
    if case.section.estimates_kl:
        assert wanted.figures["kl"] > 0.01
    for engine in ("fast", "plain"):
        same_step(our_step(tiny, engine, case.section, replies), wanted)


@pytest.mark.full
def test_smoothed_labels_are_a_mixture_of_both_orders(tiny, tmp_path):
    """TRL 1.16 smooths the labels of `robust` only: a smoothed loss is its loss of the pairs and of swapped ones."""
    case, share = CASES[0], 0.2
    right, wrong = (their_step(tiny, tmp_path, case, paired(swapped=swapped)) for swapped in (False, True))
    gradients = {name: (1 - share) * one + share * wrong.gradients[name] for name, one in right.gradients.items()}
    wanted = Step((1 - share) * right.loss + share * wrong.loss, right.figures, gradients)
    section = case.section.model_copy(update={"label_smoothing": share})
    for engine in ("fast", "plain"):
        same_step(our_step(tiny, engine, section, paired()), wanted)
