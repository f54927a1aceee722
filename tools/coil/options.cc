#include "options.h"

#include <string>

#include "base/json.h"

namespace coil::tool {

namespace {

void add_text(CommandLine& app, std::string& value, const std::string& flag, const char* placeholder, const char* help) {
  if (flag.empty()) return;
  if (flag.find('{') != std::string::npos) app.add_flag(flag, value, help);
  else app.add_option(flag, value, help).type_name(placeholder);
}

void add_number(CommandLine& app, int& value, int least, int most, const std::string& flag, const char* placeholder, const char* help) {
  if (!flag.empty()) app.add_option(flag, value, help).within(least, most).type_name(placeholder);
}

}  // namespace

void add_threads_option(CommandLine& app, int& threads, const char* help) { app.add_option("--threads", threads, help).within(1, kMostThreads).type_name("N"); }

void add_input_options(CommandLine& app, GivenInputs& inputs) {
  app.add_option("-i,--input", inputs.files, "real inputs instead of random ones, as for `coil run`").one_each().type_name("FILE");
  app.add_option("--shape", inputs.shapes, "size of a dynamic dimension; default: 8, or the nearest size in range").one_each().type_name("DIM=SIZE");
}

void add_device_option(CommandLine& app, std::string& device) {
  app.add_option("--device", device, "cpu, cuda or cuda:N; default: the package's first target that this machine can run").type_name("DEVICE");
}

void add_program_option(CommandLine& app, std::string& program) {
  app.add_option("--program", program, "which program of a package of several; default: the first one").type_name("NAME");
}

void add_kernels_option(CommandLine& app, CompileArguments& a, const char* name) {
  app.add_option(name, a.kernels, "your own kernels for the program's operators: a JSON file, or a folder of them (docs/user_kernels.md)")
      .one_each()
      .type_name("PATH");
}

void add_compile_options(CommandLine& app, CompileArguments& a, const char* user_kernels) {
  add_kernels_option(app, a, user_kernels);
  app.add_option("--dim", a.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)").one_each().type_name("NAME=WHICH");
  add_settings(app, a);
}

void add_settings(CommandLine& app, CompileSettings& a) {
#define TEXT(field, text, ...) add_text(app, a.field, __VA_ARGS__);
#define NUMBER(field, number, ...) add_number(app, a.field, __VA_ARGS__);
#define WITHOUT(field, flag, help) app.add_flag(flag, [&a] { a.field = false; }, help);
#define LIST(field, flag, placeholder, help) app.add_option(flag, a.field, help).one_each().type_name(placeholder);
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
}

std::string changed_settings(const CompileSettings& settings) {
  const CompileSettings defaults;
  Json changed = Json::object();
#define TEXT(field, ...) \
  if (settings.field != defaults.field) changed[#field] = settings.field;
#define NUMBER(field, ...) TEXT(field)
#define WITHOUT(field, ...) TEXT(field)
#define LIST(field, ...) TEXT(field)
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
  return changed.dump();
}

}  // namespace coil::tool
