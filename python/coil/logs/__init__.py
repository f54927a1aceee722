"""What PyTorch's own ways to look into a compiler show of coil: TORCH_LOGS, TORCH_TRACE (tlparse) and TORCH_COMPILE_DEBUG=1.

Each module here is one artifact; its name is what TORCH_LOGS takes:

    TORCH_LOGS=coil                      a line or a few for each: graphs, fusion, perf_hints, recompiles
    TORCH_LOGS=+coil                     all of it: schedules and generated code as well
    TORCH_LOGS=+coil.logs.output_code    one alone; the others are graphs, fusion, schedule, perf_hints, recompiles

`torch._logging.set_logs(modules={"coil.logs.fusion": logging.INFO})` does the same from within. With TORCH_COMPILE_DEBUG=1 every stage of every program is a text in
torch_compile_debug/run_.../coil, as COIL_DUMP writes it for files (docs/debugging.md).
"""
