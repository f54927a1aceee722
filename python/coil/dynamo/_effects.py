"""Checks, of linear algebra and of data. AOTAutograd puts operators without results in an order by tokens that some take and give; those whose whole
effect is an error need none. So a check runs in the program that has what it looks at, and cuts none in two."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from .._errors import AssertionFailed, Error, InputError

aten = torch.ops.aten

CHECKS = {aten._linalg_check_errors.default, aten._assert_async.msg}


class LinAlgError(InputError, torch.linalg.LinAlgError):
    """A matrix that cannot be factorised: the error that eager raises (COIL-E212)."""


class FailedCheck(AssertionFailed, RuntimeError):
    """Data that an operator does not take: the error that eager raises (COIL-E211)."""


_EAGERS = {212: LinAlgError, 211: FailedCheck}


def as_eager_raises(error: Error) -> Error:
    """A failed check with eager's type and text, which PyTorch's users look for; other errors as they are."""
    kind = _EAGERS.get(error.number)
    if kind is None:
        return error
    found = kind(error.reason or str(error))
    found.__dict__.update(error.__dict__)
    return found


def is_check(node: Node) -> bool:
    return node.op == "call_function" and node.target in CHECKS


def free_checks(graph: Graph) -> None:
    """Takes the tokens from checks."""
    for node in list(graph.nodes):
        if not _has_token(node):
            continue
        token, check, *arguments = node.args
        with graph.inserting_before(node):
            freed = graph.call_function(check, tuple(arguments), node.kwargs)  # type: ignore[arg-type]
        freed.meta.update({key: value for key, value in node.meta.items() if key != "val"}, val=None)
        for user in list(node.users):
            user.replace_all_uses_with(token)  # type: ignore[arg-type]
            graph.erase_node(user)
        graph.erase_node(node)


def _has_token(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.HigherOrderOperator) or target.name() != "with_effects":
        return False
    return node.args[1] in CHECKS and all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
