"""Convolutions of training graphs that are matrix products: those with windows of one pixel over images with their channels last.

PyTorch's convolutions cut a graph into coil's programs. These need not: pixels are the rows of a product, and what stands around them is computed with it.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ._split import base_of, tensors_of

aten = torch.ops.aten

_ONE, _NONE = [1, 1], [0, 0]


def write_products(graph: Graph) -> None:
    """Changes the graph. The gradients of weights stay convolutions': sums over all pixels, for which cuDNN has kernels of its own."""
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and _is_product(node, node.args[0], node.args[1], node.args[3:]):
            _Product(graph, node).forward()
        elif node.target is aten.convolution_backward.default and _is_product(node, node.args[1], node.args[2], node.args[4:]) and node.args[10][0]:  # type: ignore[index]
            _Product(graph, node).gradient()


def _is_product(node: Node, image: Any, weight: Any, parameters: tuple) -> bool:
    """`parameters`: stride, padding, dilation, transposed, output_padding, groups, ..."""
    stride, padding, _, transposed, _, groups = parameters[:6]
    x, w = image.meta["val"], weight.meta["val"]
    if base_of(weight).op == "get_attr" or len(x.shape) != 4 or transposed or groups != 1:
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *x.stride())) or x.numel() == 0:
        return False
    lies_so = all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, *(n.meta["val"] for n in node.args[:1])))  # type: ignore[union-attr]
    return list(w.shape[2:]) == _ONE and list(stride) == _ONE and list(padding) == _NONE and lies_so and x.dtype in (torch.bfloat16, torch.float16)


class Writer:
    """Nodes in front of `node`, with the values that tracing finds."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.mode = next(tensors_of(node.meta["val"])).fake_mode  # type: ignore[attr-defined]

    def op(self, target: Any, *args: Any, **more: Any) -> Node:
        with self.mode:
            value = target(*torch.fx.map_arg(args, lambda n: n.meta["val"]), **more)
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(target, args, more)
        made.meta.update(self.node.meta, val=value)
        return made

    def replace_gradients(self, made: dict[int, Node]) -> None:
        """Of a convolution's gradients (of image, weight and bias: 0 to 2) those that are made otherwise; its own operator keeps the rest, if there is any."""
        parts = {user.args[1]: user for user in self.node.users if user.target is operator.getitem}
        for place, value in made.items():
            if place in parts:
                parts[place].replace_all_uses_with(value)
                self.graph.erase_node(parts[place])
        for place in [place for place in parts if not self.node.args[10][place]]:  # type: ignore[index]
            self._erase_none(parts.pop(place))
        wanted = [asked and place not in made for place, asked in enumerate(self.node.args[10])]  # type: ignore[arg-type]
        if not any(wanted[place] for place in parts):
            self.graph.erase_node(self.node)
            return
        arguments = list(self.node.args)
        arguments[10] = wanted
        self.node.args = tuple(arguments)
        self.node.meta["val"] = tuple(value if keeps else None for value, keeps in zip(self.node.meta["val"], wanted))

    def _erase_none(self, part: Node) -> None:
        """A gradient that nobody asked for is None wherever it is read."""
        for user in list(part.users):
            user.args = torch.fx.map_arg(user.args, lambda n: None if n is part else n)
        self.graph.erase_node(part)

    def with_bias(self, images: Node, bias: Node) -> Node:
        channels = [1, -1] + [1] * (images.meta["val"].dim() - 2)
        return self.op(aten.add.Tensor, images, self.op(aten.view.default, bias, channels))

    def bias_gradient(self) -> Node:
        gradient = self.node.args[0]
        return self.op(aten.sum.dim_IntList, gradient, [d for d in range(gradient.meta["val"].dim()) if d != 1])  # type: ignore[union-attr]


class _Product(Writer):
    def forward(self) -> None:
        image, weight, bias = self.node.args[:3]
        matrix = self.op(aten.t.default, self.matrix(weight))
        rows = self.op(aten.mm.default, self.rows(image), matrix) if bias is None else self.op(aten.addmm.default, bias, self.rows(image), matrix)
        self.node.replace_all_uses_with(self.images(rows, image))
        self.graph.erase_node(self.node)

    def gradient(self) -> None:
        """Of the image and the bias; the convolution's own operator keeps the weight's."""
        gradient, _, weight = self.node.args[:3]
        _, _, of_bias = self.node.args[10]  # type: ignore[misc]
        made = {0: self.images(self.op(aten.mm.default, self.rows(gradient), self.matrix(weight)), gradient)}
        if of_bias:
            made[2] = self.bias_gradient()
        self.replace_gradients(made)

    def rows(self, image: Any) -> Node:
        n, c, h, w = image.meta["val"].shape
        return self.op(aten.view.default, self.op(aten.permute.default, image, [0, 2, 3, 1]), [n * h * w, c])

    def matrix(self, weight: Any) -> Node:
        return self.op(aten.view.default, weight, list(weight.meta["val"].shape[:2]))

    def images(self, rows: Node, like: Any) -> Node:
        n, _, h, w = like.meta["val"].shape
        return self.op(aten.permute.default, self.op(aten.view.default, rows, [n, h, w, rows.meta["val"].shape[1]]), [0, 3, 1, 2])
