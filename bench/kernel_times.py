"""The time of a call's kernels on a GPU, by torch.profiler."""

import torch


def kernel_times(call, calls=1):
    """(µs of all kernels of a call, launches a call, the kernels: (µs a call, launches a call, name), busiest first), over `calls` calls.

    Copies and fills of the device count as kernels do. The host's time is not in it.
    """
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    events = sorted((e for e in found.key_averages() if e.self_device_time_total > 0), key=lambda e: -e.self_device_time_total)
    rows = [(round(e.self_device_time_total / calls, 1), e.count // calls, e.key[:120]) for e in events]
    return sum(e.self_device_time_total for e in events) / calls, sum(e.count for e in events) // calls, rows
