"""Core ATen: the overloads that PyTorch tags as such, and which of them coil has no code for."""

import subprocess

import torch

import harness

# Handled before lowering, or no computation: sizes become expressions, what writes becomes what computes (src/passes/functionalize.cc).
ELSEWHERE = {"aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel.default", "aten.sym_storage_offset.default", "aten.sym_is_contiguous.default",
             "aten.atan2.out", "aten.resize_.default", "aten._local_scalar_dense.default"}


def core_overloads():
    """{"aten.add.Tensor", ...}"""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is not None and torch.Tag.core in overload.tags:
            found.add(str(overload))
    return found


def missing():
    """(number of core overloads, those that coil lacks)"""
    done = subprocess.run([harness.COIL, "check", "--operators"], capture_output=True, text=True, check=True)
    core = core_overloads()
    return len(core), sorted(core - set(done.stdout.split()) - ELSEWHERE)


def section():
    """Lines for docs/coverage.md."""
    total, lost = missing()
    lines = ["## Core ATen", "", f"{total - len(lost)} of the {total} core ATen overloads have code." + (" Missing:" if lost else "")]
    return [*lines, *(["", *(f"- {name}" for name in lost)] if lost else []), ""]
