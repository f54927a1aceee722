#include "options.h"

#include <CLI/CLI.hpp>
#include <string>

namespace coil::tool {

namespace {

void add_text(CLI::App& app, std::string& value, const std::string& flag, const char* placeholder, const char* help) {
  if (flag.empty()) return;
  if (flag.find('{') != std::string::npos) app.add_flag(flag, value, help);
  else app.add_option(flag, value, help)->type_name(placeholder);
}

void add_number(CLI::App& app, int& value, int least, int most, const std::string& flag, const char* placeholder, const char* help) {
  if (!flag.empty()) app.add_option(flag, value, help)->check(CLI::Range(least, most))->type_name(placeholder);
}

}  // namespace

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
  app.add_option("--dim", a.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)")->allow_extra_args(false)->type_name("NAME=WHICH");
#define TEXT(field, text, ...) add_text(app, a.field, __VA_ARGS__);
#define NUMBER(field, number, ...) add_number(app, a.field, __VA_ARGS__);
#define WITHOUT(field, flag, help) app.add_flag_callback(flag, [&a] { a.field = false; }, help);
#define LIST(field, flag, placeholder, help) app.add_option(flag, a.field, help)->allow_extra_args(false)->type_name(placeholder);
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
}

}  // namespace coil::tool
