"""Programs that write to their inputs (caches of a fixed size) and give them back as results: such results are not computed again."""

from __future__ import annotations

from typing import Any

import torch
from torch.export.graph_signature import OutputKind


def _written_input(node: torch.fx.Node, inputs: dict[str, int]) -> int | None:
    """The number of the input whose memory a result is: operators that end in an underscore give their first argument back."""
    while node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        schema = node.target._schema
        first = schema.arguments[0] if schema.arguments else None
        returned = schema.returns[0] if len(schema.returns) == 1 else None
        if not (first and returned and first.alias_info and returned.alias_info and first.alias_info.is_write and returned.alias_info.is_write):
            return None
        if not isinstance(node.args[0], torch.fx.Node):
            return None
        node = node.args[0]
    return inputs.get(node.name) if node.op == "placeholder" else None


def without_written_inputs(program: Any) -> tuple[Any, list[int]]:
    """The program without results that are its own changed inputs, and for each result of before: its number now, or -1 - (number of the input)."""
    signature = program.graph_signature
    users = {s.arg.name: i for i, s in enumerate(s for s in signature.input_specs if s.kind.name == "USER_INPUT") if hasattr(s.arg, "name")}
    output = program.graph.output_node()
    kept_nodes, kept_specs, results, written = [], [], [], False
    for node, spec in zip(output.args[0], signature.output_specs):
        if spec.kind != OutputKind.USER_OUTPUT:
            kept_nodes.append(node)
            kept_specs.append(spec)
            continue
        source = _written_input(node, users) if isinstance(node, torch.fx.Node) and node.op == "call_function" else None
        if source is not None:
            results.append(-1 - source)
            written = True
            continue
        results.append(sum(s.kind == OutputKind.USER_OUTPUT for s in kept_specs))
        kept_nodes.append(node)
        kept_specs.append(spec)
    if not written:
        return program, results
    return _with_outputs(program, kept_nodes, kept_specs), results


def _with_outputs(program: Any, nodes: list, specs: list) -> Any:
    graph = torch.fx.Graph()
    copies: dict = {}
    graph.graph_copy(program.graph, copies)
    graph.output(tuple(copies.get(n, n) if isinstance(n, torch.fx.Node) else n for n in nodes))
    user = [s for s in specs if s.kind == OutputKind.USER_OUTPUT]
    leaves = tuple(object() for _ in user)
    _, spec = torch.utils._pytree.tree_flatten(leaves)
    calls = list(program.module_call_graph)
    top = calls[0]
    calls[0] = torch.export.exported_program.ModuleCallEntry(
        fqn=top.fqn, signature=torch.export.exported_program.ModuleCallSignature(
            inputs=top.signature.inputs, outputs=[s.arg for s in user], in_spec=top.signature.in_spec, out_spec=spec,
            forward_arg_names=top.signature.forward_arg_names))
    signature = torch.export.ExportGraphSignature(input_specs=list(program.graph_signature.input_specs), output_specs=specs)
    return torch.export.ExportedProgram(
        root=program.graph_module, graph=graph, graph_signature=signature, state_dict=program.state_dict, range_constraints=program.range_constraints,
        module_call_graph=calls, example_inputs=program.example_inputs, constants=program.constants, verifiers=program.verifiers)
