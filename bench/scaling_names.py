"""Programs of n nodes whose names, traces and results are odd."""

from scaling_programs import Graph, Program, binary, closed, shape, unary


@shape
def wrapped(n):
    """Graphs in graphs that mean no more than what is in them."""
    p = Program()
    x = p.input(4, 8)
    for i in range(n // 10):
        g = Graph(f"w{i}")
        y = g.capture(x)
        for _ in range(9):
            y = unary(g, "sin", y)
        g.output(y)
        x = p.op("higher_order.invoke_subgraph", [4, 8], _graph=g, _name="same", _operands=x)
    return closed(p, x)


# ---- Texts
def traced(n, trace, stack="L__self__,,M"):
    """Expensive and cheap nodes, some of them equal, each of which came from somewhere."""
    p = Program()
    p.metadata = lambda number: {"stack_trace": trace(number), "nn_module_stack": stack if isinstance(stack, str) else stack(number)}
    x = p.input(4, 8)
    y = x
    for i in range(n // 3):
        y = binary(p, "add", unary(p, "sin", y), unary(p, "sin", x))
    return closed(p, y)


def frame(file, line):
    return f'File "{file}", line {line}, in forward\n    x = x.sin()\n'


@shape
def places(n):
    """A line of its own for each node, and equal nodes among them."""
    return traced(n, lambda i: frame("/home/u/model.py", i))


@shape
def module_paths(n):
    return traced(n, lambda i: frame("/home/u/model.py", i % 50), lambda i: f"L__self__,,M;L['self']._modules['a'],layers.{i}.attention.query,torch.nn.Linear")


@shape
def deep_traces(n):
    return traced(n, lambda i: "".join(frame(f"/home/u/part{k}.py", i + k) for k in range(40)))


@shape
def deep_modules(n):
    return traced(n, lambda i: frame("m.py", 3), lambda i: ";".join(f"L['self']{'.a' * k},m{'.a' * k},torch.nn.Module" for k in range(40)))


@shape
def long_names(n):
    p = Program()
    p.named = lambda number: f"v{number}_" + "name_" * 60
    x = p.input(4, 8)
    for i in range(n // 2):
        x = binary(p, "sub", unary(p, "sin", x), x)
    return closed(p, x)


@shape
def names_alike(n):
    """In-place operators of one name, each of which needs a name of its own in functional form."""
    p = Program()
    x = unary(p, "neg", p.input(16, 8))
    p.metadata = lambda number: {}
    for i in range(n // 2):
        row = p.op("aten.select.int", [8], self=x, dim=0, index=i % 16)
        p.op("aten.relu_.default", [8], self=row)
        p.nodes[-1]["name"] = "relu_"
    return closed(p, x)


# ---- Outputs
@shape
def same_outputs(n):
    p = Program()
    y = unary(p, "sin", p.input(4, 8))
    return closed(p, *[y] * n)


@shape
def inputs_as_outputs(n):
    p = Program()
    return closed(p, *[p.input(4, 8) for _ in range(n)])


@shape
def views_as_outputs(n):
    p = Program()
    x = unary(p, "sin", p.input(n, 8))
    return closed(p, *[p.op("aten.select.int", [8], self=x, dim=0, index=i) for i in range(n)])


@shape
def chain_outputs(n):
    """Every value of a chain."""
    p = Program()
    x = p.input(4, 8)
    for _ in range(n):
        x = unary(p, "sin", x)
        p.output(x)
    return p
