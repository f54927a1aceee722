"""Where the time of a workload goes on a GPU: its kernels, by torch.profiler, of coil or of a peer.

usage: python3 bench/gpu_profile.py WORKLOAD... [--peers coil,aoti] [--calls 20] [--rows 25] [--tf32]

Workloads: gpu_workloads.py. A row is a kernel: microseconds a call (all its launches), launches a call, name. The profiler's own
cost lies between kernels, not in them. With --device cpu rows are PyTorch's operators, of which coil's calls have none.
"""

import argparse
import collections
import pathlib
import tempfile

from gpu_workloads import workloads  # first: it adds tests/gpu to the path

import gpu_peers
import needs


def kernel_times(torch, call, calls, cuda=True):
    """{kernel: (microseconds a call, launches a call)}, busiest first."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    wait = torch.cuda.synchronize if cuda else lambda: None
    for _ in range(5):
        call()
    wait()
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as trace:
        for _ in range(calls):
            call()
        wait()
    found = collections.defaultdict(lambda: [0.0, 0])
    for event in trace.events():
        if event.device_type == (DeviceType.CUDA if cuda else DeviceType.CPU):
            found[event.name][0] += event.time_range.elapsed_us() / calls
            found[event.name][1] += 1 / calls
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(workloads()), metavar="WORKLOAD")
    parser.add_argument("--peers", type=lambda s: s.split(","), default=["coil"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--rows", type=int, default=25)
    parser.add_argument("--tf32", action="store_true", help="float32 products and convolutions on tensor cores")
    options = parser.parse_args()
    needs.gpu(options.device)
    options.work = pathlib.Path(tempfile.mkdtemp(prefix="coil-profile-"))
    import torch

    for name in options.names:
        for peer in options.peers:
            with torch.no_grad():
                call = gpu_peers.prepare(options, peer, name)[0]
                times = kernel_times(torch, call, options.calls, options.device.startswith("cuda"))
            print(f"{name}, {peer}: {sum(us for us, _ in times.values()):.1f} us in {sum(n for _, n in times.values()):.0f} launches")
            for kernel, (us, launches) in list(times.items())[: options.rows]:
                print(f"  {us:9.2f} {launches:7.1f}  {kernel[:150]}", flush=True)


if __name__ == "__main__":
    main()
