"""KL and gain kept of a run's quantized files with an importance matrix and without.

    python tests/bench importance RUN OUT [TYPE ...]

Prints one JSON line a file. Files are checked on held-out rows of the run against the trained model in fp32, as every
export is.
"""

import argparse
import json
from pathlib import Path

from burnish_engine.chat.run_model import trained_model
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.export.job import export_gguf
from burnish_engine.export.run_rows import export_rows
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions
from burnish_engine.runs.store import open_run, read_recipe

TYPES = ["Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_M", "IQ3_M", "Q2_K"]


def main():
    """Export twice and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="folder of a finished run")
    parser.add_argument("out", type=Path, help="folder of the files")
    parser.add_argument("types", nargs="*", default=TYPES, metavar="TYPE")
    options = parser.parse_args()
    paths = open_run(options.run)
    recipe = read_recipe(paths)
    source, adapter = trained_model(paths, recipe)
    rows = export_rows(paths, recipe, source)
    for name, training in (("without", ()), ("with", rows.training)):
        model = ExportedModel(
            source, adapter, held_out=rows.held_out, probe_chats=rows.chats[:3],
            options=ReferenceOptions(
                supervised=rows.supervised, training=training, tokens=ExportSection().importance_tokens
            ),
        )  # fmt: skip
        report = export_gguf(model, options.out / name, "m", options.types)
        print(json.dumps({"base": report.base_loss, "tuned": report.tuned_loss, "tokens": report.importance_tokens}))
        for file in report.files:
            line = file.model_dump(exclude={"reply", "sha256", "tensor_types", "problems", "fallbacks"})
            print(json.dumps({"matrix": name, **line}), flush=True)


if __name__ == "__main__":
    main()
