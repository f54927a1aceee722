#include "options.h"

#include <CLI/CLI.hpp>

#include "compiler/options.h"

namespace coil::tool {

void add_threads_option(CLI::App& app, int& threads, const char* help) {
  app.add_option("--threads", threads, help)->check(CLI::Range(1, kMostThreads))->type_name("N");
}

void add_device_option(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda or cuda:N; default: the package's first target that this machine can run")->type_name("DEVICE");
}

void add_kernels_option(CLI::App& app, CompileArguments& a) {
  app.add_option("--kernels", a.kernels, "kernels of your own for the program's operators: a JSON file, or a folder of such (docs/user_kernels.md)")
      ->allow_extra_args(false)
      ->type_name("PATH");
}

void add_compile_options(CLI::App& app, CompileArguments& a) {
  add_kernels_option(app, a);
  app.add_option("--target", a.target, "what the package holds code for, with commas: cpu, cpu:x86-64-v3, cpu:x86-64-v4, aarch64, aarch64:neon, cuda:sm_80, cuda:sm_90, ..., cuda:compute_80 (PTX for later chips)")
      ->type_name("LIST");
  app.add_option("--dim", a.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)")
      ->allow_extra_args(false)
      ->type_name("NAME=WHICH");
  app.add_option("-O", a.opt_level, "optimisation of the generated code; default: 2")->check(CLI::Range(0, 3))->type_name("0..3");
  app.add_flag_callback("--no-libraries", [&a] { a.libraries = false; },
                        "CUDA code does without cuBLASLt and cuDNN, the CPU's tuner without oneDNN, even where the machine has them and they are faster");
  app.add_flag_callback("--no-graphs", [&a] { a.graphs = false; },
                        "CUDA code launches its kernels one by one, also where a repeated call is faster as a CUDA graph");
  app.add_flag("--tf32", a.tf32, "CUDA code rounds the factors of float32 products and convolutions to 10 bits of mantissa (TensorFloat-32), for the tensor cores");
  app.add_flag_callback("--no-winograd", [&a] { a.winograd = false; },
                        "CPU code computes 3x3 convolutions by plain sums only: 2 to 4 times slower; an infinity or NaN then reaches no neighbour's 4x4 tile");
  app.add_option("--tune", a.tune, "times ways to run each kernel on this machine, within the whole program, and keeps the fastest: fast (10 s), max (60 s)")
      ->type_name("off|fast|max");
  app.add_option("--tune-budget", a.tune_budget, "how long the tuner may take: 30s, 2m, 500ms")->type_name("TIME");
  app.add_option("--tune-memory", a.tune_memory, "scratch memory of a call, and oneDNN's copies of weights, above which the tuner leaves out ways that need more: 64MB, 1GiB")->type_name("BYTES");
  app.add_option("--tune-threads", a.tune_threads, "threads of the timed calls; default: all that this process may use")->check(CLI::Range(1, kMostThreads))->type_name("N");
  app.add_option("--warm", a.warm, "sizes of a dynamic dimension that matter: batch=1,8,64")->allow_extra_args(false)->type_name("DIM=SIZES");
  app.add_option("--record", a.record, "tuning record (JSON): what it knows of this machine is taken from it, what is new is added")->type_name("FILE");
  app.add_option("--replay", a.replay, "makes all choices as this tuning record says, without timing: the same package byte for byte")->type_name("FILE");
  app.add_option("--skip", a.skip, "leave out a pass, to bisect a wrong result (also COIL_SKIP)")
      ->allow_extra_args(false)
      ->type_name("PASS");
}

}  // namespace coil::tool
