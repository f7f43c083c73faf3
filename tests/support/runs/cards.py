"""Cards made by hand, for tests of what reads them."""

from burnish_engine.contract.run.card import (
    CardData,
    CardModel,
    CardResult,
    DataFile,
    HashedFile,
    RunCard,
    RunEnvironment,
)


def digest(letter):
    """A hash that is told from others."""
    return letter * 64


def files(**contents):
    """Files by name (`_` stands for a dot, after "adapter" for a dash) with a letter for the content; None: unread."""
    return [
        HashedFile(
            name=name.replace("adapter_", "adapter-").replace("_", "."), bytes=7, sha256=letter and digest(letter)
        )
        for name, letter in contents.items()
    ]


def row_files(*contents, role="train"):
    """Files of rows from (name, letter for the content or None), in order."""
    return [DataFile(name=name, bytes=1, sha256=letter and digest(letter), role=role) for name, letter in contents]


def make_card(*, versions=None, base=None, data=None, tokens="t", trained="r", result=True, **changes):
    """A card; keyword arguments that are facts of the circumstances replace them, others replace the card's."""
    facts = {
        "os": "Linux 6.1", "architecture": "x86_64", "device": "Lamp 9000", "compute_capability": "9.0",
        "memory_bytes": 8 * 2**30, "threads": 4, "engine": "fast", "precision": "bf16", "weights": "bf16",
        "layout": "packed", "memory_plan": "layers = all:2, mlp_rows = 0, head_rows = 256",
    }  # fmt: skip
    facts |= {name: changes.pop(name) for name in list(changes) if name in facts}
    known = (
        {"burnish": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "cuda": "12.8"} if versions is None else versions
    )
    made = RunCard(
        t=1.0,
        recipe_sha256=digest("e"),
        seed=3,
        steps=10,
        circumstances=RunEnvironment(versions=known, **facts),
        data=CardData(
            files=data or [DataFile(name="train.jsonl", bytes=5, sha256=digest("d"), role="train")],
            tokens_sha256=digest(tokens),
            train_rows=40,
            held_out_rows=8,
            tokens=2000,
            learned_tokens=900,
        ),
        base=CardModel(name="tiny", files=base or files(model_safetensors="b", config_json="c", tokenizer_json="k")),
        result=CardResult(
            t=2.0, ended="finished", step=10, tokens=2000, trained="adapter", memory_plan="",
            files=files(adapter_model_safetensors=trained),
        )
        if result
        else None,
    )  # fmt: skip
    return made.model_copy(update=changes)
