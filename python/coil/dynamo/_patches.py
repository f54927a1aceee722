"""Convolutions of training graphs whose windows lie side by side (a step is as long as a window): patches of an image as the rows of a product.

PyTorch's convolutions take up to five times as long for what a vision transformer does first, and for the steps between the stages of ConvNeXt and of
Swin's relatives (bench/log/torch_compile_gpu.md): they look for windows that share pixels. Here no two do, so that all three products (of the images, of their
gradients and of the weight's) are products of matrices, and patches are only another order of the pixels, which coil's programs write while they compute
them. A transposed convolution of this kind is the same with the image's and the result's parts exchanged.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch.fx import Graph, Node

from ._layout import convolutions_in_tf32, products_in_tf32, same_strides
from ._products import Writer
from ._split import base_of

aten = torch.ops.aten


def write_patches(graph: Graph) -> None:
    """Changes the graph."""
    for node in list(graph.nodes):
        if node.target is aten.convolution.default and _are_patches(node.args[0], node.args[1], node.args[3:]):
            _Patches(graph, node, node.args[0], node.args[1], bool(node.args[6])).forward()
        elif node.target is aten.convolution_backward.default and _are_patches(node.args[1], node.args[2], node.args[4:]):
            _Patches(graph, node, node.args[1], node.args[2], bool(node.args[7])).gradients()


def _are_patches(image: Any, weight: Any, parameters: Sequence[Any]) -> bool:
    """`parameters`: stride, padding, dilation, transposed, output_padding, groups, ..."""
    stride, padding, dilation, _, output_padding, groups = parameters[:6]
    x, w = image.meta["val"], weight.meta["val"]
    window = list(w.shape[2:])
    if base_of(weight).op == "get_attr" or len(x.shape) != len(w.shape) or groups != 1 or not _has_fast_products(x.dtype):
        return False
    if not all(isinstance(n, int) for n in (*x.shape, *w.shape)) or x.numel() == 0 or w.numel() == 0:
        return False
    given = [[n[0]] * len(window) if len(n) == 1 else list(n) for n in (stride, padding, dilation, output_padding)]
    return max(window) > 1 and given == [window, [0] * len(window), [1] * len(window), [0] * len(window)]


def _has_fast_products(dtype: torch.dtype) -> bool:
    """Float32's where they are as exact as the convolution would be."""
    return dtype in (torch.bfloat16, torch.float16) or (dtype == torch.float32 and convolutions_in_tf32() == products_in_tf32())


class _Patches(Writer):
    """`wide`: the one of image and result whose pixels are the windows'; `narrow`: the other, with a pixel for each window. A patch's numbers are in the
    order in which the wide one lies: the channels of a pixel side by side, or a channel's pixels."""

    def __init__(self, graph: Graph, node: Node, image: Any, weight: Any, transposed: bool) -> None:
        super().__init__(graph, node)
        self.image, self.weight, self.transposed = image, weight, transposed
        self.window = list(weight.meta["val"].shape[2:])
        dims = range(len(self.window))
        x = image.meta["val"]
        channels_last = x.stride(1) == 1 and x.shape[1] > 1 or x.permute(0, *range(2, x.dim()), 1).is_contiguous()
        # Of a patch's dimensions (channels, then pixels), as of the weight's after its first.
        self.order = [*(1 + d for d in dims), 0] if channels_last else [0, *(1 + d for d in dims)]

    def forward(self) -> None:
        bias = self.node.args[2]
        matrix = self.matrix()
        if self.transposed:
            wide = self.scattered(self.op(aten.mm.default, self.rows(self.image), matrix), self.node.meta["val"].shape)
            result = wide if bias is None else self.with_bias(wide, bias)
        else:
            by = self.op(aten.t.default, matrix)
            rows = self.gathered(self.image)
            product = self.op(aten.mm.default, rows, by) if bias is None else self.op(aten.addmm.default, bias, rows, by)
            result = self.of_rows(product, self.node.meta["val"].shape)
        self.node.replace_all_uses_with(self.laid_as(result, self.node.meta["val"]))
        self.graph.erase_node(self.node)

    def gradients(self) -> None:
        gradient = self.node.args[0]
        of_image, of_weight, of_bias = self.node.args[10]  # type: ignore[misc]
        of_result = self.gathered(gradient) if self.transposed else self.rows(gradient)
        made = {}
        if of_image:
            shape = self.image.meta["val"].shape
            if self.transposed:
                made[0] = self.of_rows(self.op(aten.mm.default, of_result, self.op(aten.t.default, self.matrix())), shape)
            else:
                made[0] = self.scattered(self.op(aten.mm.default, of_result, self.matrix()), shape)
        if of_weight:
            left, right = (self.rows(self.image), of_result) if self.transposed else (of_result, self.gathered(self.image))
            product = self.op(aten.mm.default, self.op(aten.t.default, left), right)
            made[1] = self.of_matrix(product)
        if of_bias:
            made[2] = self.bias_gradient()
        results = self.node.meta["val"]
        self.replace_gradients({place: self.laid_as(value, results[place]) for place, value in made.items()})

    def matrix(self) -> Node:
        """[channels of the narrow one, numbers of a patch]"""
        shape = self.weight.meta["val"].shape
        turned = self.op(aten.permute.default, self.weight, [0, *(1 + d for d in self.order)])
        return self.flat(turned, [shape[0], shape[1:].numel()])

    def of_matrix(self, matrix: Node) -> Node:
        shape = self.weight.meta["val"].shape
        laid = self.op(aten.view.default, matrix, [shape[0], *(shape[1 + d] for d in self.order)])
        return self.op(aten.permute.default, laid, [0, *(1 + self.order.index(d) for d in range(len(self.order)))])

    def rows(self, narrow: Any) -> Node:
        """[pixels of all images, channels]"""
        shape = narrow.meta["val"].shape
        turned = self.op(aten.permute.default, narrow, [0, *range(2, len(shape)), 1])
        return self.flat(turned, [shape[0] * shape[2:].numel(), shape[1]])

    def of_rows(self, rows: Node, shape: torch.Size) -> Node:
        laid = self.op(aten.view.default, rows, [shape[0], *shape[2:], shape[1]])
        return self.op(aten.permute.default, laid, [0, len(shape) - 1, *range(1, len(shape) - 1)])

    def gathered(self, wide: Any) -> Node:
        """[windows of all images, numbers of a patch]; pixels behind the last window are in none."""
        shape = wide.meta["val"].shape
        counts = [n // k for n, k in zip(shape[2:], self.window)]
        for d, (count, k) in enumerate(zip(counts, self.window), start=2):
            if count * k != shape[d]:
                wide = self.op(aten.slice.Tensor, wide, d, 0, count * k)
        split = self.op(aten.view.default, wide, [*shape[:2], *(n for pair in zip(counts, self.window) for n in pair)])
        patch = [1, *(3 + 2 * d for d in range(len(counts)))]  # where a patch's dimensions are in `split`
        turned = self.op(aten.permute.default, split, [0, *(2 + 2 * d for d in range(len(counts))), *(patch[d] for d in self.order)])
        return self.flat(turned, [shape[0] * torch.Size(counts).numel(), shape[1] * torch.Size(self.window).numel()])

    def scattered(self, rows: Node, shape: torch.Size) -> Node:
        """The image of these patches, with zeros behind the last window."""
        counts = [n // k for n, k in zip(shape[2:], self.window)]
        patch = [shape[1], *self.window]
        split = self.op(aten.view.default, rows, [shape[0], *counts, *(patch[d] for d in self.order)])
        at = [1 + len(counts) + self.order.index(d) for d in range(len(patch))]  # where a patch's dimensions are in `split`
        pixels = [n for d in range(len(counts)) for n in (1 + d, at[1 + d])]
        if self.order[0] == 0:
            turned, back = [0, at[0], *pixels], None
            lies = [shape[0], shape[1], *(n * k for n, k in zip(counts, self.window))]
        else:
            turned, back = [0, *pixels, at[0]], [0, len(patch), *range(1, len(patch))]
            lies = [shape[0], *(n * k for n, k in zip(counts, self.window)), shape[1]]
        image = self.flat(self.op(aten.permute.default, split, turned), lies)
        if back:
            image = self.op(aten.permute.default, image, back)
        rest = [n - count * k for n, count, k in zip(shape[2:], counts, self.window)]
        return self.op(aten.constant_pad_nd.default, image, [n for r in reversed(rest) for n in (0, r)]) if any(rest) else image

    def flat(self, node: Node, shape: Sequence[int]) -> Node:
        """A view where there is one, else of a copy."""
        try:
            with self.mode:
                node.meta["val"].view(shape)
        except (RuntimeError, ValueError):  # what tracing raises
            node = self.op(aten.clone.default, node, memory_format=torch.contiguous_format)
        return self.op(aten.view.default, node, list(shape))

    def laid_as(self, node: Node, wanted: torch.Tensor) -> Node:
        """With the strides that tracing found for the convolution's result: what reads it was traced with these."""
        if same_strides(node.meta["val"], wanted):
            return node
        order = sorted(range(wanted.dim()), key=lambda d: (-wanted.stride(d), d))
        copy = self.op(aten.clone.default, self.op(aten.permute.default, node, order), memory_format=torch.contiguous_format)
        return self.op(aten.permute.default, copy, [order.index(d) for d in range(wanted.dim())])
