"""What an importance matrix is worth: KL and gain kept of a run's files with it and without.

`python tests/bench/importance.py RUN OUT [TYPE ...]` prints one JSON line a file. Files are checked on held-out rows
of the run against the trained model in fp32, as every export is.
"""

import json
import sys
from pathlib import Path

from burnish_engine.chat.run_model import trained_model
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.export.job import export_gguf
from burnish_engine.export.run_rows import export_rows
from burnish_engine.export.verify.reference import ReferenceOptions
from burnish_engine.runs.store import open_run, read_recipe

TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_M", "IQ3_M", "Q2_K"]


def main(run, out, *types):
    """Export twice and print what was measured."""
    paths = open_run(run)
    recipe = read_recipe(paths)
    source, adapter = trained_model(paths, recipe)
    rows = export_rows(paths, recipe, source)
    for name, training in (("without", ()), ("with", rows.training)):
        report = export_gguf(
            source, adapter, Path(out) / name, "m", list(types) or TYPES, held_out=rows.held_out,
            probe_chats=rows.chats[:3],
            options=ReferenceOptions(
                supervised=rows.supervised, training=training, tokens=ExportSection().importance_tokens
            ),
        )  # fmt: skip
        print(json.dumps({"base": report.base_loss, "tuned": report.tuned_loss, "tokens": report.importance_tokens}))
        for file in report.files:
            line = file.model_dump(exclude={"reply", "sha256", "tensor_types", "problems", "fallbacks"})
            print(json.dumps({"matrix": name, **line}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
