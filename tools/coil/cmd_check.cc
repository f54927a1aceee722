// coil check: every operator of a program as native, computed by the host (on GPUs), or missing, before anything is compiled.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "archive_option.h"
#include "base/text.h"
#include "command.h"
#include "load_model.h"
#include "lower/lower.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct CheckArguments {
  std::string model;
  CompileArguments compile;
  bool json = false, operators = false;
};

// "aten.add.Tensor" is what people call aten.add.Tensor; nothing is shortened, so that it can be searched for.
std::string to_text(const std::string& model, const std::vector<CheckRow>& rows, size_t missing) {
  const Style style;
  Table table(2, {2});
  for (bool supported : {false, true}) {  // what is missing first
    for (const CheckRow& row : rows) {
      if (row.supported != supported) continue;
      std::string where = row.where.empty() ? "" : style.dim(row.where);
      table.add({!supported    ? style.red("missing")
                 : row.by_host ? "host"
                               : style.green("native"),
                 row.target, std::to_string(row.count), supported ? where : row.problem + (where.empty() ? "" : "  " + where)});
    }
  }
  std::string text = table.text();
  const size_t kinds = rows.size();
  if (missing == 0) {
    const auto by_host = static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](const CheckRow& row) { return row.by_host; }));
    const std::string all = count_text(kinds, "kind") + " of operators";
    text += by_host ? fmt::format("{}: {}, {} computed by the CPU: the tensors are copied there and back\n", shown(model), all, by_host)
                    : fmt::format("{}: {}, all native\n", shown(model), all);
  } else {
    text += fmt::format("{}: {} of {} kinds of operators missing\n", shown(model), missing, kinds);
  }
  return text;
}

Json to_json(const std::string& model, const std::vector<CheckRow>& rows, size_t missing) {
  Json ops = Json::array();
  for (const CheckRow& row : rows) {
    Json op = {{"op", row.target}, {"status", !row.supported ? "missing" : row.by_host ? "host" : "native"}, {"count", row.count}, {"where", row.where}};
    if (!row.supported) op["problem"] = row.problem;
    ops.push_back(std::move(op));
  }
  return {{"model", model}, {"native", missing == 0}, {"missing", missing}, {"ops", ops}};
}

// The operators that coil has code for, one a line.
int list_operators() {
  std::string text;
  for (const std::string& name : lowered_operators()) text += name + "\n";
  put(text);
  return 0;
}

Result<int> check(const CheckArguments& a) {
  if (a.operators) return list_operators();
  if (a.model.empty()) return Error{ErrorCode::bad_option, "a model is needed", "", "coil check MODEL.pt2"};
  TRY(const ZipReader zip, ZipReader::open(a.model));
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  Progress silent;
  TRY(const CompileOptions options, compile_options(a.compile, silent));
  TRY(const std::vector<CheckRow> rows, check_program(program.graph, options));
  size_t missing = 0;
  for (const CheckRow& row : rows) missing += row.supported ? 0 : 1;
  put(a.json ? json_text(to_json(a.model, rows, missing)) : to_text(a.model, rows, missing));
  return missing == 0 ? 0 : exit_code(ErrorCode::unsupported_op);
}

}  // namespace

Action add_check(CommandLine& app) {
  auto a = std::make_shared<CheckArguments>();
  app.add_option("model", a->model, "exported program (.pt2 of torch.export.save)").type_name("MODEL.pt2");
  app.add_option("--target", a->compile.target, "targets to check for, as for `coil compile`: cpu (the default), cuda:sm_90, cpu,cuda:sm_90").type_name("LIST");
  app.add_option("--dim", a->compile.dims, "name a dynamic dimension, by symbol (batch=s77) or input (batch=x:0)").one_each().type_name("NAME=WHICH");
  add_archive_option(app, a->compile.program);
  add_kernels_option(app, a->compile);
  app.add_flag("--json", a->json, "print the rows as JSON");
  app.add_flag("--operators", a->operators, "list the operators that coil has code for, without a model");
  app.footer(
      "Examples:\n"
      "  coil check model.pt2\n"
      "  coil check model.pt2 --json\n"
      "  coil check model.pt2 --target cuda:sm_90     what is missing on a GPU\n"
      "Exit code 0: none is missing (host: in a program for a GPU the CPU computes it); 5: some are, or the program cannot be read.");
  return [a] { return check(*a); };
}

}  // namespace coil::tool
