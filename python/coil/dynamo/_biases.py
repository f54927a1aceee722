"""Biases of the convolutions that training graphs leave to PyTorch: added, and their gradients summed, by coil.

PyTorch's convolutions have kernels of their own for both, each of which reads all images once more. Beside a convolution coil's programs read the images
anyhow: an activation's adds the bias, and an activation's gradient is summed where it is computed.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from ._products import Writer

aten = torch.ops.aten


def separate_biases(graph: Graph) -> None:
    """Changes the graph."""
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and isinstance(node.args[2], Node):
            _add_bias(Writer(graph, node))
        elif node.target is aten.convolution_backward.default and node.args[10][2]:  # type: ignore[index]
            writer = Writer(graph, node)
            writer.replace_gradients({2: writer.bias_gradient()})


def _add_bias(writer: Writer) -> None:
    node = writer.node
    image, weight, bias = node.args[:3]
    images = writer.op(aten.convolution.default, image, weight, None, *node.args[3:])
    node.replace_all_uses_with(writer.with_bias(images, bias))
    writer.graph.erase_node(node)
