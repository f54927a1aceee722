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

void add_program_option(CLI::App& app, std::string& program) {
  app.add_option("--program", program, "which program of a package of several; default: the first one")->type_name("NAME");
}

void add_kernels_option(CLI::App& app, CompileArguments& a) {
  app.add_option("--kernels", a.kernels, "your own kernels for the program's operators: a JSON file, or a folder of them (docs/user_kernels.md)")
      ->allow_extra_args(false)
      ->type_name("PATH");
}

void add_compile_options(CLI::App& app, CompileArguments& a) {
  add_kernels_option(app, a);
  app.add_option("--target", a.target, "targets to compile for, separated by commas: cpu, cpu:x86-64-v3, cpu:x86-64-v4, aarch64, aarch64:neon, cuda:sm_80, cuda:sm_90, ..., cuda:compute_80 (PTX for later chips)")
      ->type_name("LIST");
  app.add_option("--dim", a.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)")
      ->allow_extra_args(false)
      ->type_name("NAME=WHICH");
  app.add_option("-O", a.opt_level, "optimisation level of the generated code; default: 2")->check(CLI::Range(0, 3))->type_name("0..3");
  app.add_flag_callback("--no-libraries", [&a] { a.libraries = false; },
                        "never use cuBLASLt and cuDNN (CUDA) or oneDNN (tuned CPU code), even where they are faster");
  app.add_flag_callback("--no-graphs", [&a] { a.graphs = false; },
                        "never turn repeated calls into CUDA graphs: launch kernels one by one");
  app.add_flag("--tf32{all}", a.tf32,
               "let CUDA code round the operands of float32 products and convolutions to TensorFloat-32 (10 bits of mantissa) and use the tensor cores; "
               "--tf32=products, --tf32=convolutions: of these alone");
  app.add_flag_callback("--no-winograd", [&a] { a.winograd = false; },
                        "compute 3x3 convolutions on the CPU by direct sums only: 2 to 4 times slower, but an infinity or NaN does not spread to the surrounding pixels");
  app.add_option("--tune", a.tune, "time variants of each kernel on this machine, inside the whole program, and keep the fastest: fast (10 s), max (60 s)")
      ->type_name("off|fast|max");
  app.add_option("--tune-budget", a.tune_budget, "how long the tuner may take: 30s, 2m, 500ms")->type_name("TIME");
  app.add_option("--tune-memory", a.tune_memory, "leave out variants that need more than this for a call's scratch memory and oneDNN's copies of weights: 64MB, 1GiB")->type_name("BYTES");
  app.add_option("--tune-threads", a.tune_threads, "threads of the timed calls; default: all that this process may use")->check(CLI::Range(1, kMostThreads))->type_name("N");
  app.add_option("--warm", a.warm, "sizes of a dynamic dimension to tune for first: batch=1,8,64")->allow_extra_args(false)->type_name("DIM=SIZES");
  app.add_option("--record", a.record, "tuning record (JSON): results for this machine are reused, and new ones are added")->type_name("FILE");
  app.add_option("--replay", a.replay, "make the choices of this tuning record, without timing: the same package byte for byte")->type_name("FILE");
  app.add_option("--skip", a.skip, "leave out a pass, to bisect a wrong result (also COIL_SKIP)")
      ->allow_extra_args(false)
      ->type_name("PASS");
  app.add_option("--without", a.without, "leave out a step of the scheduler, to bisect a wrong or slow result: epilogues, siblings, inlining, images, in_place, split, keys, select, beside, joins, padding, fusion, or fusion:NAME for what reads the value NAME")
      ->allow_extra_args(false)
      ->type_name("STEP");
  app.add_option("--replace-kernel", a.replace_kernels, "put an edited kernel in the place of a generated one: a kernel's or function's name, and a file that began as `coil inspect --source` of it")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE");
}

}  // namespace coil::tool
