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
