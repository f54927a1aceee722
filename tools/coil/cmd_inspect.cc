// coil inspect: what an archive holds, read from its entries. Nothing of it is ever run or loaded as code.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "inspect.h"
#include "options.h"

namespace coil::tool {
namespace {

Result<int> inspect(const InspectArguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.model));
  return of_manifest(a.model, [&] { return archive_kind(zip) == ArchiveKind::package ? inspect_package(zip, a) : inspect_program(zip, a); });
}

}  // namespace

Action add_inspect(CommandLine& app) {
  auto a = std::make_shared<InspectArguments>();
  app.add_option("model", a->model, "package, or exported program").required().type_name("MODEL");
  add_program_option(app, a->program);
  app.add_flag("--kernels", a->kernels, "the kernels, with the operators and source lines that each of them computes");
  app.add_flag("--memory", a->memory, "the formula of a call's memory, and the buffers of its scratch space");
  app.add_flag("--fusion", a->fusion, "which operations were not fused, and why");
  const Option source = app.add_option("--source", a->source, "generated code: of the kernel or file NAME, or all of it").values(0, 1).type_name("[NAME]");
  app.add_option("--shape", a->shapes, "size of a dynamic dimension for --memory").one_each().type_name("DIM=SIZE");
  app.add_option(
         "--require", a->requirements,
         "of a package: what has to hold, such as \"kernels <= 40\", \"fused(attn.q, attn.k)\", \"peak <= 2GB\" (at --shape); exit code 1 where it does not")
      .one_each()
      .type_name("CONDITION");
  app.add_flag("--entries", a->entries, "the archive's entries and their sizes");
  app.add_flag("--licenses", a->licenses, "whose code a package contains, and the terms that go with it");
  app.add_flag("--json", a->json, "print everything as JSON");
  app.footer(
      "Examples:\n"
      "  coil inspect model.coil.pt2\n"
      "  coil inspect model.coil.pt2 --kernels --fusion\n"
      "  coil inspect model.coil.pt2 --memory --shape batch=64\n"
      "  coil inspect model.coil.pt2 --source softmax\n"
      "  coil inspect model.coil.pt2 --licenses\n"
      "  coil inspect model.pt2                        signature and operators of a program\n"
      "Nothing of the file is executed or loaded as code, whatever it holds.\n");
  return [a, source] {
    a->all_sources = source.given() && a->source.empty();
    a->device_text = device_text(a->source);
    return inspect(*a);
  };
}

}  // namespace coil::tool
