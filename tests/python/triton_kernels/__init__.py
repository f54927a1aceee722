"""Twelve kernels in Triton, each an operator of torch.library.triton_op in a module of its own, which has:
`Model` (a module that calls the operator between others), `example(device)` (arguments of its forward), `dims` (which of their
dimensions are dynamic), `reference(model, *args)` (the same in plain PyTorch), and `tolerance`."""

NAMES = ("softmax", "layer_norm", "matmul", "attention", "dropout", "cross_entropy", "rotary", "int4_product", "top_k", "scan", "embedding_bag", "swiglu")
