"""Attention as people write it by hand, over query, key and value [batch, heads, rows, dim] and a mask [rows, rows]: FORMS by name."""

import math

import torch

F = torch.nn.functional
FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


def products(q, k):
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5


@form
def divided(q, k, v, m):
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1) @ v


@form
def softmax_in_float32(q, k, v, m):
    return F.softmax(products(q, k) + m.to(q.dtype), dim=-1, dtype=torch.float32).to(q.dtype) @ v


@form
def softmax_in_float32_without_mask(q, k, v, m):
    return F.softmax(products(q, k), dim=-1, dtype=torch.float32).to(q.dtype) @ v


@form
def bias_in_float32(q, k, v, m):
    return F.softmax((products(q, k) + m).float(), dim=-1).type_as(v) @ v


@form
def filled_with_infinity(q, k, v, m):
    return products(q, k).masked_fill(m < 0, float("-inf")).softmax(-1) @ v


@form
def filled_with_the_lowest(q, k, v, m):
    w = products(q, k)
    return w.masked_fill(m < 0, torch.finfo(w.dtype).min).softmax(-1) @ v


@form
def chosen_by_where(q, k, v, m):
    w = products(q, k)
    return F.softmax(torch.where(m < 0, torch.finfo(w.dtype).min, w).float(), -1).type_as(v) @ v


@form
def shown_by_where(q, k, v, m):
    w = products(q, k)
    return torch.where(m > 0, w, float("-inf")).softmax(-1) @ v


@form
def filled_and_biased(q, k, v, m):
    return (products(q, k).masked_fill(m < 0, float("-inf")) + m.to(q.dtype)).softmax(-1) @ v


@form
def filled_twice(q, k, v, m):
    """Numbers as low as there are add up to -inf: what is filled is replaced."""
    lowest = torch.finfo(torch.float16 if q.dtype == torch.float16 else torch.bfloat16).min
    w = products(q, k) + torch.where(m < -1, lowest, 0.0).to(q.dtype)
    return w.masked_fill(m < -0.5, lowest).masked_fill(m < 0, lowest).softmax(-1) @ v


@form
def lower_triangle(q, k, v, m):
    n = q.shape[-2]
    return products(q, k).masked_fill(torch.tril(torch.ones(n, n, device=q.device)) == 0, float("-inf")).softmax(-1) @ v


@form
def upper_triangle(q, k, v, m):
    n = q.shape[-2]
    return products(q, k).masked_fill(torch.triu(torch.ones(n, n, dtype=torch.bool, device=q.device), diagonal=1), float("-inf")).softmax(-1) @ v


@form
def triangle_by_where(q, k, v, m):
    w, n = products(q, k), q.shape[-2]
    seen = torch.tril(torch.ones(n, n, dtype=torch.bool, device=q.device))[None, None]
    return F.softmax(torch.where(seen, w, torch.full([], torch.finfo(w.dtype).min, dtype=w.dtype, device=q.device)), dim=-1).type(v.dtype) @ v


@form
def anti_causal(q, k, v, m):
    n = q.shape[-2]
    return products(q, k).masked_fill(torch.tril(torch.ones(n, n, device=q.device), diagonal=-1) != 0, float("-inf")).softmax(-1) @ v


@form
def scaled_keys(q, k, v, m):
    return (q @ (k * k.shape[-1] ** -0.5).transpose(-2, -1) + m.to(q.dtype)).softmax(-1) @ v


@form
def shared_heads(q, k, v, m):
    k, v = [x[:, : x.shape[1] // 2, None].expand(-1, -1, 2, -1, -1).reshape(x.shape) for x in (k, v)]
    return F.softmax(products(q, k) + m.to(q.dtype), dim=-1, dtype=torch.float32).to(q.dtype) @ v


@form
def filled_with_a_large_number(q, k, v, m):
    return products(q, k).masked_fill(m < 0, -1e4).softmax(-1) @ v


@form
def scores_in_float32(q, k, v, m):
    return F.softmax(products(q.float(), k.float()) + m, dim=-1).to(q.dtype) @ v


@form
def transposed_before(q, k, v, m):
    return (torch.matmul(q, k.permute(0, 1, 3, 2).contiguous()) * q.shape[-1] ** -0.5).softmax(-1).matmul(v)


def joined(*tensors):
    """Batches and heads as one dimension, in the way of torch.nn.MultiheadAttention and older models of transformers."""
    return [x.flatten(0, 1) for x in tensors]


@form
def three_dimensions(q, k, v, m):
    q3, k3, v3 = joined(q, k, v)
    return torch.bmm(torch.bmm(q3, k3.transpose(1, 2)).mul(q.shape[-1] ** -0.5).softmax(-1), v3).view(q.shape)


@form
def three_dimensions_with_a_mask(q, k, v, m):
    q3, k3, v3 = joined(q, k, v)
    return torch.bmm((torch.bmm(q3, k3.transpose(1, 2)) * q.shape[-1] ** -0.5 + m.to(q.dtype)).softmax(-1), v3).view(q.shape)


@form
def product_added_to_nothing(q, k, v, m):
    q3, k3, v3 = joined(q, k, v)
    empty = torch.empty(len(q3), q3.shape[1], k3.shape[1], dtype=q.dtype, device=q.device)
    return torch.bmm(torch.baddbmm(empty, q3, k3.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5).softmax(-1), v3).view(q.shape)


@form
def product_added_to_a_mask(q, k, v, m):
    q3, k3, v3 = joined(q, k, v)
    return torch.bmm(torch.baddbmm(m.to(q.dtype).expand(len(q3), *m.shape), q3, k3.transpose(1, 2), alpha=q.shape[-1] ** -0.5).softmax(-1), v3).view(q.shape)


@form
def softmax_of_four_between_products_of_three(q, k, v, m):
    q3, k3, v3 = joined(q, k, v)
    w = torch.bmm(q3, k3.transpose(1, 2)).view(*q.shape[:3], k.shape[2]) * q.shape[-1] ** -0.5 + m.to(q.dtype)
    return torch.bmm(w.softmax(-1).flatten(0, 1), v3).view(q.shape)


@form
def rows_before_heads(q, k, v, m):
    """[rows, batch * heads, dim], as torch.nn.MultiheadAttention lays them out, and back."""
    b, h, n, d = q.shape
    q3, k3, v3 = [x.permute(2, 0, 1, 3).reshape(n, b, h * d).contiguous().view(n, b * h, d).transpose(0, 1) for x in (q, k, v)]
    out = torch.bmm(torch.softmax(torch.bmm(q3 * d**-0.5, k3.transpose(-2, -1)), dim=-1), v3)
    return out.transpose(0, 1).contiguous().view(n, b, h, d).permute(1, 2, 0, 3)


@form
def heads_split_from_columns(q, k, v, m):
    """[batch, rows, heads * dim], split into [batch * heads, rows, dim], and back."""
    b, h, n, d = q.shape
    q, k, v = [x.transpose(1, 2).reshape(b, n, h * d) for x in (q, k, v)]
    q3, k3, v3 = [x.view(b, n, h, d).transpose(1, 2).reshape(b * h, n, d) for x in (q, k, v)]
    out = torch.bmm((torch.bmm(q3, k3.transpose(1, 2)) * d**-0.5).softmax(-1), v3).view(b, h, n, d).transpose(1, 2).reshape(b, n, h * d)
    return out.view(b, n, h, d).transpose(1, 2)


@form
def one_head(q, k, v, m):
    return torch.stack([(q[:, i] @ k[:, i].transpose(1, 2) * q.shape[-1] ** -0.5).softmax(-1) @ v[:, i] for i in range(q.shape[1])], 1)


@form
def matrices(q, k, v, m):
    one = (q[0, 0] @ k[0, 0].T * q.shape[-1] ** -0.5 + m.to(q.dtype)).softmax(-1) @ v[0, 0]
    return one.expand(q.shape)


@form
def five_dimensions(q, k, v, m):
    b, h, n, d = q.shape
    q, k, v = q.reshape(b, h // 2, 2, n, d), k[:, ::2, None], v[:, ::2, None]
    return ((q @ k.transpose(-2, -1)) * d**-0.5).softmax(-1).matmul(v).flatten(1, 2)


@form
def windows_of_images(q, k, v, m):
    b, h, n, d = q.shape
    q, k, v = [x.reshape(b, h, 2, n // 2, d).transpose(1, 2) for x in (q, k, v)]
    return ((q @ k.transpose(-2, -1)) * d**-0.5).softmax(-1).matmul(v).transpose(1, 2).reshape(b, h, n // 2 * 2, d)


@form
def einsum_of_heads(q, k, v, m):
    w = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bhjd->bhid", w.softmax(-1), v)


@form
def einsum_of_rows_before_heads(q, k, v, m):
    q, k, v = [x.transpose(1, 2) for x in (q, k, v)]
    w = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bjhd->bihd", w.softmax(-1), v).transpose(1, 2)


@form
def softmax_of_columns(q, k, v, m):
    """The transpose of all: columns are queries."""
    w = (k @ q.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return (v.transpose(-2, -1) @ w.softmax(-2)).transpose(-2, -1)


@form
def weights_transposed(q, k, v, m):
    w = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    return (v.transpose(-2, -1) @ w.softmax(-1).transpose(-2, -1)).transpose(-2, -1)
