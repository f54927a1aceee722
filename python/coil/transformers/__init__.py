"""coil as a backend of transformers' exporters: importing this module makes `export_format="coil"` known to them.

    import coil.transformers
    from transformers.exporters import AutoHfExporter, ExportedModel

    config = coil.transformers.CoilConfig(dynamic=True)
    exported = AutoHfExporter.from_config(config).export_for_generation(model, tokenizer("Hello", return_tensors="pt"), config)
    exported.save_pretrained("folder")             # a package with all programs, which has the weights once

    exported = ExportedModel.from_pretrained("folder", device="cpu")
    fast = coil.transformers.for_generation(exported)   # a model of transformers without weights, whose calls are the package's programs
    fast.generate(**tokenizer("Hello", return_tensors="pt"), max_new_tokens=50)

Needs transformers 5.23 or newer (`pip install coil[transformers]`).
"""

from __future__ import annotations

from transformers.exporters import register_backend
from transformers.exporters.auto import EXPORT_BACKENDS

from ._exporter import CoilConfig, CoilExporter, Program
from ._generation import for_generation
from ._runner import CoilRunner

__all__ = ["CoilConfig", "CoilExporter", "CoilRunner", "Program", "for_generation"]

if EXPORT_BACKENDS.get(CoilExporter.export_format) is None:
    register_backend(CoilExporter, CoilRunner)
