#include "codegen/cpu/host/launch_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "codegen/cpu/host/prologue_text.h"
#include "codegen/foreign_text.h"
#include "loop/templates/template.h"
#include "schedule/kernel_buffers.h"

namespace coil {
namespace {

constexpr size_t kLeastRun = 64;     // fewer are readable statements
constexpr size_t kMostBuffers = 16;  // of a launch in a table

// What a row does; numbers from kFirstTemplate on are rows of forms_.
enum Kind { kLoop, kCopy, kFirstTemplate };

std::string place_text(const FixedPlace& p) { return fmt::format(" {}, {},", p.base, p.offset); }

Expr copied_bytes(const KernelPlan& plan, const CopyKernel& copy) {
  const BufferInfo& b = plan.buffer(copy.from).info;
  return product(*plan.pool, b.sizes) * byte_size(b.dtype);
}

bool plain_field(const cpu::CallField& f) { return f.number || f.place.has_value(); }

bool plain_template(const KernelPlan& plan, const TemplateKernel& t) {
  if (checks_data(t.def) || !plain_field(cpu::scratch_field(plan, t))) return false;
  const cpu::CallFields call = cpu::template_fields(plan, t);
  return std::all_of(call.fields.begin(), call.fields.end(), plain_field);
}

}  // namespace

bool LaunchTable::plain_launch(const cpu::CpuLaunch& launch) const {
  return launch.configs.empty() && launch.symbols.empty() && launch.buffers.size() <= kMostBuffers &&
         std::all_of(launch.buffers.begin(), launch.buffers.end(), [&](BufferId id) { return fixed_place(plan_, id).has_value(); });
}

bool LaunchTable::plain(size_t kernel) const {
  const Kernel& k = plan_.kernels[kernel];
  const cpu::CpuLaunch& launch = program_.launches[kernel];
  if (!k.choices.rows.empty()) return false;
  if (const auto* copy = std::get_if<CopyKernel>(&k.def)) {
    return !copy->to_element && !copies_elements(plan_, *copy) && copied_bytes(plan_, *copy)->is_constant() && fixed_place(plan_, copy->from) &&
           fixed_place(plan_, copy->to);
  }
  if (!plain_launch(launch)) return false;
  if (const auto* t = std::get_if<TemplateKernel>(&k.def)) return plain_template(plan_, *t);
  return (std::holds_alternative<LoopKernel>(k.def) || std::holds_alternative<SortKernel>(k.def)) && launch.items->is_constant() && launch.work->is_constant();
}

size_t LaunchTable::run_length(size_t begin, size_t end) {
  size_t at = std::max(begin, plain_until_);  // runs that were too short are not looked at again from each of their kernels
  if (begin < plain_from_ || begin >= plain_until_) at = plain_from_ = begin;
  while (at < end && plain(at)) ++at;
  plain_until_ = at;
  return at - begin < kLeastRun ? 0 : at - begin;
}

LaunchTable::Run LaunchTable::run(size_t begin, size_t end, const std::function<int(size_t kernel)>& flag) {
  used_ = true;
  std::string launches, places;
  for (size_t k = begin; k < end; ++k) {
    launches += fmt::format("  {},  // {}\n", row(k, flag(k), places), comment_text(plan_.kernels[k].name));
    places += "\n";
  }
  Run out;
  out.definitions = fmt::format(
      "static const Launch kLaunches_{0}[] = {{\n{1}}};\nstatic const int64_t kPlaces_{0}[] = {{  // of each launch's pointers, and of its template's fields\n{2}  0}};\n\n",
      begin, launches, places);
  out.call = fmt::format("  launch_all(call, host, s, flags, kLaunches_{0}, {1}, kPlaces_{0});\n", begin, end - begin);
  return out;
}

std::string LaunchTable::row(size_t kernel, int flag, std::string& places) {
  const Kernel& k = plan_.kernels[kernel];
  const cpu::CpuLaunch& launch = program_.launches[kernel];
  if (const auto* copy = std::get_if<CopyKernel>(&k.def)) {
    places += " " + place_text(*fixed_place(plan_, copy->to)) + place_text(*fixed_place(plan_, copy->from));
    return fmt::format("{{{}, {}, -1, -1, 2, 0, 0, {}, 0}}", static_cast<int>(kCopy), kernel, copied_bytes(plan_, *copy)->as_int());
  }
  places += " ";
  for (BufferId id : launch.buffers) places += place_text(*fixed_place(plan_, id));
  if (const auto* t = std::get_if<TemplateKernel>(&k.def)) return template_row(kernel, *t, flag, places);
  return fmt::format("{{{}, {}, {}, {}, {}, 0, 0, {}, {}}}", static_cast<int>(kLoop), kernel, launch.function, flag, launch.buffers.size(),
                     launch.items->as_int(), launch.work->as_int());
}

std::string LaunchTable::template_row(size_t kernel, const TemplateKernel& t, int flag, std::string& places) {
  cpu::CallFields call = cpu::template_fields(plan_, t);
  call.fields.push_back(cpu::scratch_field(plan_, t));
  const std::string function = function_table(device_object(plan_, t));
  size_t kind = 0;
  while (kind < forms_.size() && forms_[kind].function != function) ++kind;
  if (kind == forms_.size()) forms_.push_back({call.type, function, {}, {}});
  cpu::CallFields numbers = {call.type, {}};
  size_t pointers = 0;
  for (const cpu::CallField& f : call.fields) {
    if (f.number) {
      numbers.fields.push_back(f);
    } else {
      places += fmt::format(" offsetof({}, {}),{}", call.type, f.name, place_text(*f.place));
      ++pointers;
    }
  }
  Forms& forms = forms_[kind];
  const auto [form, added] = forms.numbers.try_emplace(cpu::fields_text(numbers), static_cast<int>(forms.texts.size()));
  if (added) forms.texts.push_back(form->first);
  const cpu::CpuLaunch& launch = program_.launches[kernel];
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, 0, 0}}", kFirstTemplate + kind, kernel, t.epilogue.empty() ? -1 : launch.function, flag,
                     launch.buffers.size(), form->second, pointers);
}

// The forms of a template are functions that run at compile time: so they are written like any call.
std::string LaunchTable::apply_function() const {
  std::string text, cases;
  for (size_t kind = 0; kind < forms_.size(); ++kind) {
    const Forms& f = forms_[kind];
    text += fmt::format("static constexpr {} {}_forms[] = {{\n", f.type, f.function);
    for (const std::string& form : f.texts) text += fmt::format("  []() {{\n{}    return t;\n  }}(),\n", form);
    text += "};\n";
    const bool attention = f.type == "CoilAttention";  // has no epilogue
    cases += fmt::format(
        "    case {}: {{\n      {} t = {}_forms[l->form];\n      place = fill(call, &t, l->pointers, place);\n{}      {}[chosen](&t, host);\n      break;\n    }}\n",
        kFirstTemplate + kind, f.type, f.function,
        attention ? "" : "      if (l->function >= 0) t.epilogue = (CoilEpilogue)kFunctions[chosen][l->function], t.epilogue_context = &args;\n", f.function);
  }
  if (!forms_.empty()) {
    text +=
        "static inline const int64_t* fill(const cd::TracedCall* call, void* t, int32_t pointers, const int64_t* place) {\n"
        "  for (; pointers > 0; --pointers, place += 3) {\n    void* const p = placed(call, place + 1);\n    memcpy((char*)t + place[0], &p, sizeof p);\n  }\n  return place;\n}\n";
  }
  return text +
         "static const int64_t* apply(const cd::TracedCall* call, const CoilHost* host, const Launch* l, void* const* p, coil_args& args, const int64_t* place) {\n  (void)p;\n  switch (l->kind) {\n" +
         fmt::format(
             "    case {}: launch(host, kFunctions[chosen][l->function], l->items, l->work, &args); break;\n    case {}: memcpy(p[0], p[1], (size_t)l->items); break;\n",
             static_cast<int>(kLoop), static_cast<int>(kCopy)) +
         cases + "  }\n  return place;\n}\n";
}

std::string LaunchTable::support(HostFile file) const {
  if (!used_) return "";
  const std::string row = "struct Launch {\n  int32_t kind, kernel, function, flag, buffers, form, pointers;\n  int64_t items, work;\n};\n";
  const std::string all =
      "void launch_all(const cd::TracedCall* call, const CoilHost* host, const long* s, int* flags, const Launch* l, int64_t n, const int64_t* place)";
  if (file == HostFile::further) return row + shared_text(file, all, "");
  return row + placed_function() + apply_function() +
         shared_text(file, all,
                     fmt::format(" {{\n"
                                 "  for (const Launch* const end = l + n; l != end; ++l) {{\n"
                                 "    COIL_BEGIN(l->kernel, 0);\n"
                                 "    void* p[{} + 1];\n"
                                 "    for (int32_t i = 0; i < l->buffers; ++i, place += 2) p[i] = placed(call, place);\n"
                                 "    p[l->buffers] = nullptr;\n"
                                 "    coil_args args = {{p, s, l->flag < 0 ? nullptr : flags + l->flag}};\n"
                                 "    place = apply(call, host, l, p, args, place);\n"
                                 "    COIL_END(l->kernel, 0);\n  }}\n}}\n\n",
                                 kMostBuffers));
}

}  // namespace coil
