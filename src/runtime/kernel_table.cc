// See kernel_table.h.
#include "runtime/kernel_table.h"

#include "base/json_read.h"
#include "base/size_formula.h"
#include "runtime/manifest.h"
#include "runtime/model.h"
#include "runtime/programs.h"

namespace coil::runtime {
namespace {

std::string text_of(JsonValue object, std::string_view key) {
  const auto found = object.find(key);
  if (!found) return "";
  if (auto text = found->as_string(); text.ok()) return std::string(text.value());
  if (auto number = found->as_int(); number.ok()) return std::to_string(number.value());
  return "";
}

KernelRow row_of(JsonValue kernel) {
  KernelRow row = {text_of(kernel, "name"),  text_of(kernel, "function"), text_of(kernel, "kind"), {}, "", "", "",
                   text_of(kernel, "bytes"), text_of(kernel, "flops")};
  if (auto ops = kernel.get_array("ops"); ops.ok()) {
    for (JsonValue op : ops.value()) {
      if (auto text = op.as_string(); text.ok()) row.ops.emplace_back(text.value());
    }
  }
  if (auto origins = kernel.get_array("origins"); origins.ok() && !origins.value().empty()) {
    const JsonValue first = origins.value()[0];
    row.module = text_of(first, "module"), row.source = text_of(first, "source"), row.line = text_of(first, "line");
  }
  return row;
}

// The part with that key which is about the model's own target: the first one's stands at the top.
JsonValue part_of(JsonValue root, const Model& model, std::string_view key) {
  auto targets = root.get_array("targets");
  if (!targets.ok()) return root;
  for (JsonValue target : targets.value()) {
    if (target.is_object() && text_of(target, "model") == model.target().model && target.find(key)) return target;
  }
  return root;
}

void read_symbols(KernelTable* table, JsonValue manifest, const Model& model) {
  auto symbols = part_of(manifest, model, "symbols").get_array("symbols");
  if (!symbols.ok()) return;
  for (JsonValue symbol : symbols.value()) {
    table->symbols.push_back(text_of(symbol, "name"));
    table->sizes_from_data |= symbol.find("from_data").has_value();
    table->counters.push_back(text_of(symbol, "export_name").starts_with("coil."));
  }
}

void read_kernels(KernelTable* table, JsonValue root, const Model& model) {
  auto kernels = part_of(root, model, "kernels").get_array("kernels");
  if (!kernels.ok()) return;
  for (JsonValue kernel : kernels.value()) table->kernels.push_back(row_of(kernel));
}

// nullopt: there is none, or it is not what coil writes.
std::optional<JsonDoc> document(const ZipReader& zip, const ZipEntry* entry) {
  if (!entry) return std::nullopt;
  auto text = zip.read_text(*entry, kMaxManifest);
  if (!text.ok()) return std::nullopt;
  auto doc = JsonDoc::parse(text.value(), entry->name);
  return doc.ok() ? std::optional(std::move(doc.value())) : std::nullopt;
}

void read_into(KernelTable* table, const Model& model) {
  const ZipReader& zip = model.archive();
  const std::string& entry = model.package().manifest_entry;
  const std::optional<JsonDoc> manifest = document(zip, zip.find(entry)), kernels = document(zip, kernels_entry(zip, entry));
  if (manifest) read_symbols(table, manifest->root(), model);
  if (kernels) read_kernels(table, kernels->root(), model);
  else if (manifest) read_kernels(table, manifest->root(), model);
}

}  // namespace

std::optional<double> KernelTable::bytes(size_t kernel, std::span<const int64_t> sizes) const {
  return kernel < kernels.size() && !kernels[kernel].bytes.empty() ? evaluate_formula(kernels[kernel].bytes, symbols, sizes) : std::nullopt;
}

std::optional<double> KernelTable::flops(size_t kernel, std::span<const int64_t> sizes) const {
  return kernel < kernels.size() && !kernels[kernel].flops.empty() ? evaluate_formula(kernels[kernel].flops, symbols, sizes) : std::nullopt;
}

std::shared_ptr<const KernelTable> read_kernel_table(const Model& model) {
  auto table = std::make_shared<KernelTable>();
  table->model = model.name();
  table->path = model.archive().name();
  table->device = model.device().text();
  table->isa = model.isa();
  table->threads = model.host().num_workers;
  read_into(table.get(), model);
  return table;
}

}  // namespace coil::runtime
