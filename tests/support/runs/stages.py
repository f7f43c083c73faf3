"""An export that says on its standard output which stage it is in, and waits there when asked to."""

import time

from burnish_engine.export.job import export_gguf
from burnish_engine.export.verify.reference import ExportedModel, ReferenceOptions

from support.models.export import rows


def export_telling(source, adapter, out, stage):
    """Export two types with an importance matrix; say `stage` when it begins, and wait to be killed."""

    def tell(what, _share):
        if what == stage:
            print(what, flush=True)
            time.sleep(60)

    options = ReferenceOptions(training=rows(source, 12), tokens=512)
    types = ["Q4_0", "IQ4_NL"]
    export_gguf(
        ExportedModel(source, adapter, held_out=rows(source, 2), options=options, threads=1),
        out,
        "x",
        types,
        progress=tell,
    )
