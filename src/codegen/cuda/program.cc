// All kernels of a plan, one function for equal texts.
#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/commits.h"
#include "codegen/cuda/host/routine_text.h"
#include "codegen/cuda/images.h"
#include "codegen/cuda/joined_products.h"
#include "codegen/cuda/loop_way.h"
#include "codegen/cuda/loop_context.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "codegen/kernel_text.h"
#include "codegen/user_text.h"
#include "device/cuda/limits.h"
#include "device/cuda/shared_memory.h"
#include "schedule/kernel_buffers.h"
#include "schedule/products/join_products.h"

namespace coil::cuda {

namespace {

constexpr int64_t kMostArgsBytes = 4000;  // kernels take 4 KiB of parameters on every architecture

class ProgramWriter {
 public:
  ProgramWriter(const KernelPlan& plan, const CudaSettings& settings) : plan_(plan), settings_(settings), sms_(settings.sms) {}

  CudaProgram run() {
    program_.arg_symbols = static_cast<int>(std::max<size_t>(plan_.pool->num_symbols() - 1, 1));
    const bool checks = std::any_of(plan_.kernels.begin(), plan_.kernels.end(), checks_index);
    for (const Kernel& k : plan_.kernels) {
      CudaCall call;
      call.checks_index = checks_index(k);
      if (settings_.joins && !k.joins) {
        call.together = together(k);
        rows_joined_ = call.together ? call.together->rows : 0;
        if (call.together && call.together->always) {
          joined_until_ = program_.calls.size() + call.together->kernels;
          program_.calls.push_back(std::move(call));
          continue;
        }
      }
      if (program_.calls.size() < joined_until_) {
        call.joined = true;
      } else if (auto together = joined_launch(k)) {
        call.launches.push_back(std::move(*together));
      } else if (const auto* loop = std::get_if<LoopKernel>(&k.def)) {
        add_loop_launches(k, *loop, call);
      } else if (const auto* sort = std::get_if<SortKernel>(&k.def)) {
        add_steps(k, sort_launches(plan_, *sort), "_merge", call);
      } else if (const auto* library = std::get_if<LibraryKernel>(&k.def)) {
        if (!is_host_routine(*library)) add_steps(k, join_launches(plan_, *library), "_join", call);
      } else if (const auto* user = std::get_if<UserCallKernel>(&k.def)) {
        add_user_launches(k, *user, call);
      } else if (const auto* copy = std::get_if<CopyKernel>(&k.def)) {
        if (copies_elements(plan_, *copy)) call.launches.push_back(launch(k, "write", element_commit_text(plan_, *copy), {}, head_comment(k)));
        else if (checks && is_commit(plan_, *copy)) call.launches.push_back(commits(k, *copy));
      } else if (const auto* t = std::get_if<TemplateKernel>(&k.def)) {
        for (const int sm : sms_) {
          for (const templates::CudaVariant& v : variants(k, *t, sm)) call.launches.push_back(variant_launch(k, *t, v, sm));
        }
      }
      program_.calls.push_back(std::move(call));
    }
    return std::move(program_);
  }

 private:
  // One launch for the copy and those that follow, as far as none reads what another one writes.
  CudaLaunch commits(const Kernel& k, const CopyKernel& first) {
    std::vector<const CopyKernel*> copies = {&first};
    std::string comments = head_comment(k);
    const auto apart = [&](const CopyKernel& next) {
      return std::none_of(copies.begin(), copies.end(), [&](const CopyKernel* c) { return c->to == next.from || c->from == next.to || c->to == next.to; });
    };
    for (const Kernel* next = &k + 1; next != plan_.kernels.data() + plan_.kernels.size(); ++next) {
      const auto* copy = std::get_if<CopyKernel>(&next->def);
      const int64_t bytes = 16 * (static_cast<int64_t>(copies.size()) + 1) + 8 * program_.arg_symbols + 32;
      if (!copy || copies_elements(plan_, *copy) || !is_commit(plan_, *copy) || !apart(*copy) || bytes > kMostArgsBytes) break;
      copies.push_back(copy);
      comments += head_comment(*next);
    }
    joined_until_ = static_cast<size_t>(&k - plan_.kernels.data()) + copies.size();
    return launch(k, "write", commit_text(plan_, copies), {}, comments);  // not the state's name, which is anything
  }

  // A launch for the kernel and those that join it, if there are any, where there are few rows.
  std::optional<CudaTogether> together(const Kernel& first) {
    const size_t begin = static_cast<size_t>(&first - plan_.kernels.data());
    CudaTogether all{1, {}, kJoinedRows, true};
    while (begin + all.kernels < plan_.kernels.size() && plan_.kernels[begin + all.kernels].joins) ++all.kernels;
    if (all.kernels < 2 && !joins_itself(plan_, first)) return std::nullopt;
    for (size_t k = begin; k < begin + all.kernels; ++k) {
      if (tuned_otherwise(plan_.kernels[k])) return std::nullopt;
    }
    std::string comments;
    for (size_t k = begin; k < begin + all.kernels; ++k) comments += head_comment(plan_.kernels[k]);
    for (const int sm : sms_) {
      std::optional<JoinedProducts> joined = joined_products(plan_, begin, all.kernels, settings_.machine(sm));
      if (!joined) return std::nullopt;
      int64_t bytes = cd::kJoinedParamsBytes;
      for (const CudaArgs& a : joined->args) bytes += 8 * (static_cast<int64_t>(a.buffers.size()) + program_.arg_symbols) + 32;
      if (bytes > kMostArgsBytes) return std::nullopt;
      CudaLaunch l =
          launch(first, first.name + (all.kernels > 1 ? fmt::format("_and_{}_rows", all.kernels - 1) : "_rows"), std::move(joined->text), {sm}, comments);
      l.args = std::move(joined->args);
      l.condition = std::move(joined->condition);
      l.setup = std::move(joined->params);
      all.rows = std::min(all.rows, joined->rows);
      all.always = all.always && joined->always;
      all.launches.push_back(std::move(l));
    }
    return all;
  }

  // Whether a tuner has found something else than a kernel for few rows to be the fastest for the fewest rows.
  static bool tuned_otherwise(const Kernel& k) {
    if (!std::holds_alternative<TemplateKernel>(k.def) || k.choices.rows.empty()) return false;
    const Choice& least = k.choices.rows[0].choice;
    return least != Choice{} && as<templates::CudaWay>(least).kind != templates::kFewRows;
  }

  // One launch for the kernel and those that may run beside it, if there are any: each has its own blocks.
  std::optional<CudaLaunch> joined_launch(const Kernel& first) {
    const size_t begin = static_cast<size_t>(&first - plan_.kernels.data());
    size_t end = begin + 1;
    while (end < plan_.kernels.size() && plan_.kernels[end].beside) ++end;
    if (end - begin < 2) return std::nullopt;
    std::vector<KernelText> parts;
    int64_t bytes = 0;
    for (size_t k = begin; k < end; ++k) {
      std::optional<KernelText> part = pointwise_part(plan_, std::get<LoopKernel>(plan_.kernels[k].def));
      if (!part) break;
      bytes += 8 * (static_cast<int64_t>(part->buffers.size()) + program_.arg_symbols) + 32;
      if (bytes > kMostArgsBytes) break;
      parts.push_back(std::move(*part));
    }
    if (parts.size() < 2) return std::nullopt;
    joined_until_ = begin + parts.size();
    std::string comments;  // before the text, not in it: a function's name is a hash of the text alone
    for (size_t k = begin; k < joined_until_; ++k) comments += head_comment(plan_.kernels[k]);
    CudaLaunch l = launch(first, fmt::format("{}_and_{}", first.name, parts.size() - 1), joined_text(parts), {}, comments);
    l.grid_x = "";  // what the parts add up to
    l.args.clear();
    for (const KernelText& p : parts) l.args.push_back({-1, p.buffers, p.aligned, p.divisible, p.grid_x});
    l.work = work_of(parts);
    return l;
  }

  // At most so many blocks: each part's last one may be the only one that is not full, and some parts' blocks may do more than others'.
  GridWork work_of(const std::vector<KernelText>& parts) const {
    int64_t share = INT64_MAX;
    for (const KernelText& p : parts) share = std::min(share, p.work.amount ? p.work.per_block : INT64_MAX);
    if (share == INT64_MAX) share = 1;
    Expr sum = plan_.pool->index(0);
    for (const KernelText& p : parts) sum = sum + (p.work.amount ? p.work.amount : plan_.pool->index(1)) + (share - 1);
    return {sum, share};
  }

  KernelText joined_text(const std::vector<KernelText>& parts) const {
    KernelText t;
    std::string members, calls;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string own = fmt::format("@NAME@_{}", i);
      std::string body = parts[i].body;
      replace_all(body, "@NAME@", own);
      t.body += body;
      members += fmt::format("  {0}_args m{1};\n", own, i);
      calls += fmt::format("  {2}{1}(a.m{0}, block);\n", i, own, i + 1 < parts.size() ? fmt::format("if (kernel == {}) return ", i) : "");
    }
    t.headers = parts[0].headers;
    t.headers.push_back("cuda/beside.h");
    t.threads = parts[0].threads;
    t.body += fmt::format("struct @NAME@_args {{\n{}  cd::u32 turns, end[{}];\n}};\n", members, parts.size() - 1) +
              fmt::format(
                  "COIL_KERNEL void __launch_bounds__({}) @NAME@(const __grid_constant__ @NAME@_args a) {{\n  cd::begin_kernel();\n  cd::u32 block;\n"
                  "  const int kernel = cd::kernel_of_block<{}>(a.turns, a.end, block);\n{}}}\n",
                  t.threads, parts.size(), calls);
    return t;
  }

  void add_steps(const Kernel& k, std::vector<KernelStep> steps, const char* later, CudaCall& call) {
    for (KernelStep& part : steps) {
      std::vector<CudaLaunch>& list = call.launches.empty() ? call.launches : call.further;
      list.push_back(launch(k, call.launches.empty() ? k.name : k.name + later, std::move(part.text)));
      list.back().number = part.number, list.back().condition = std::move(part.condition);
    }
  }

  // What the tuned architecture's choices say, each for its sizes, or what a tuner may tell the program to run; then the own way.
  void add_loop_launches(const Kernel& k, const LoopKernel& loop, CudaCall& call) {
    const auto row = static_cast<size_t>(&k - plan_.kernels.data());
    const auto add = [&](const Choice& choice, std::string condition, const std::vector<int>& sms) {
      std::optional<KernelText> text = loop_text(plan_, loop, as<LoopWay>(choice));
      CHECK(text.has_value(), "a way that the loop does not have");
      call.launches.push_back(launch(k, k.name, std::move(*text), sms));
      call.launches.back().condition = std::move(condition);
      if (row < settings_.timed.size()) call.launches.back().work = {};  // a tuner's sizes fit
    };
    const std::vector<int> tuned = {settings_.tuned_sm};
    for (size_t i = 0; row < settings_.timed.size() && i < settings_.timed[row].size(); ++i) {
      const Choice& c = settings_.timed[row][i];
      if (c != Choice{}) add(c, is_declared(value_names(k), c), tuned);
    }
    bool own = true;
    if (std::find(sms_.begin(), sms_.end(), settings_.tuned_sm) != sms_.end()) {
      for (const ChoiceTable::Row& r : k.choices.rows) {
        const bool last = &r == &k.choices.rows.back();
        add(r.choice, last ? "" : fmt::format("({}) <= {}L", host_index(k.choices.key), r.up_to), tuned);
        if (last) own = sms_.size() > 1;
      }
    }
    std::vector<int> others;  // that have no code of a choice
    for (const int sm : sms_) {
      if (k.choices.rows.empty() || sm != settings_.tuned_sm) others.push_back(sm);
    }
    if (own) add({}, "", others);
  }

  // The configurations that the kernel's choices name, each for its sizes.
  void add_user_launches(const Kernel& k, const UserCallKernel& user, CudaCall& call) {
    const auto add = [&](size_t config, std::string condition) {
      if (!user.def.kernel->cuda->images.empty()) return add_images(k, user, config, condition, call);
      CudaLaunch l = launch(k, k.name, user_kernel_text(plan_, user, config));
      CudaFunction& f = program_.functions[static_cast<size_t>(l.function)];
      f.user = user.def.kernel;
      f.user_call = user_call_text(plan_, user, *user.def.kernel->cuda, "");
      l.condition = std::move(condition);
      call.launches.push_back(std::move(l));
    };
    const auto row = static_cast<size_t>(&k - plan_.kernels.data());
    for (size_t i = 0; row < settings_.timed.size() && i < settings_.timed[row].size(); ++i) {
      const Choice& c = settings_.timed[row][i];
      if (c != Choice{}) add(static_cast<size_t>(as<UserChoice>(c).config), is_declared(value_names(k), c));
    }
    for (const ChoiceTable::Row& r : k.choices.rows) {
      const bool last = &r == &k.choices.rows.back();
      add(static_cast<size_t>(as<UserChoice>(r.choice).config), last ? "" : fmt::format("{} <= {}L", host_index(k.choices.key), r.up_to));
    }
    if (k.choices.rows.empty()) add(0, "");
  }

  // Machine code that is there already: the images of the configuration, for each architecture, in the order of how much they expect of
  // the arguments.
  void add_images(const Kernel& k, const UserCallKernel& user, size_t config, const std::string& condition, CudaCall& call) {
    const auto fits = [&](const UserImage& image) { return image.config == config && std::find(sms_.begin(), sms_.end(), image.sm) != sms_.end(); };
    const std::vector<UserImage>& images = user.def.kernel->cuda->images;
    // A record may choose what was not compiled for these architectures; the first configuration was (build_cuda.cc asks for it).
    if (config != 0 && std::none_of(images.begin(), images.end(), fits)) return add_images(k, user, 0, condition, call);
    for (const UserImage& image : images) {
      if (!fits(image)) continue;
      const auto [it, fresh] = known_images_.try_emplace({user.def.kernel.get(), &image}, static_cast<int>(program_.functions.size()));
      CudaLaunch l;
      l.function = it->second;
      l.image = &image;
      l.args = {{}};
      const std::string own = image_condition(plan_, user, image);
      l.condition = condition.empty() || own.empty() ? condition + own : condition + " && " + own;
      const auto& grid = user.def.launches[config].grid;
      l.grid_x = host_index(grid[0]), l.grid_y = host_index(grid[1]), l.grid_z = host_index(grid[2]);
      call.launches.push_back(std::move(l));
      if (!fresh) continue;
      CudaFunction f;
      f.name = image.symbol;
      f.threads = image.threads, f.shared_bytes = image.shared, f.cluster = image.cluster;
      f.sms = {image.sm};
      f.label = k.name + (k.origins.empty() || k.origins[0].source.empty() ? "" : " (" + k.origins[0].source + ")");
      f.user = user.def.kernel;
      f.image = &image;
      program_.functions.push_back(std::move(f));
    }
  }

  // In the order in which the host asks them: what a tuner chose (or may tell the program to run), then the own rules, as far as
  // something is left to them.
  std::vector<templates::CudaVariant> variants(const Kernel& k, const TemplateKernel& t, int sm) const {
    std::vector<templates::CudaVariant> own = template_variants(plan_, t, settings_.machine(sm), settings_.libraries);
    if (rows_joined_ > 0 && own.size() > 1)
      std::erase_if(own, [&](const templates::CudaVariant& v) { return v.condition == fmt::format("t.m <= {}", rows_joined_); });
    if (sm != settings_.tuned_sm) return own;
    std::vector<templates::CudaVariant> out;
    const auto add = [&](templates::CudaVariant v, const std::string& condition) {
      if (v.condition.empty()) v.condition = condition;
      else if (!condition.empty()) v.condition = condition + " && " + v.condition;
      out.push_back(std::move(v));
    };
    const auto add_choice = [&](const Choice& choice, const std::string& condition) {
      if (choice == Choice{}) {
        for (const auto& v : own) add(v, condition);
      } else if (const auto v = chosen_variant(plan_, t, settings_.machine(sm), choice)) {
        add(*v, condition);
      }
    };
    const size_t row = static_cast<size_t>(&k - plan_.kernels.data());
    if (row < settings_.timed.size()) {
      for (const Choice& c : settings_.timed[row]) {
        if (c != Choice{}) add_choice(c, is_declared(value_names(k), c));
      }
    }
    for (const ChoiceTable::Row& r : k.choices.rows) {
      add_choice(r.choice, r.up_to == INT64_MAX ? "" : fmt::format("({}) <= {}L", host_index(k.choices.key), r.up_to));
    }
    if (out.empty() || !out.back().condition.empty()) out.insert(out.end(), own.begin(), own.end());
    return out;
  }

  CudaLaunch variant_launch(const Kernel& k, const TemplateKernel& t, const templates::CudaVariant& v, int sm) {
    CudaLaunch l = launch(k, k.name + "_" + v.name, template_text(plan_, t, v), {sm});
    program_.functions[static_cast<size_t>(l.function)].cluster = v.cluster;
    l.grid_x = v.grid_x, l.grid_y = v.grid_y, l.grid_z = v.grid_z;
    l.condition = v.condition;
    l.setup = v.setup;
    if (!v.library.empty()) program_.libraries.insert(v.library);
    return l;
  }

  // Functions whose code is long are called, and not inlined, where a kernel has many of them: their bodies cost NVRTC more than all the rest.
  static void call_long_functions(std::string& body) {
    constexpr size_t kMostInlined = 12;
    const std::string names[] = {"cd::sin(", "cd::cos(", "cd::tan("};
    size_t count = 0;
    for (const std::string& name : names) {
      for (size_t at = body.find(name); at != std::string::npos; at = body.find(name, at + 1)) ++count;
    }
    if (count <= kMostInlined) return;
    for (const std::string& name : names) replace_all(body, name, "cd::called::" + name.substr(4));
  }

  CudaLaunch launch(const Kernel& k, std::string name, KernelText t, std::vector<int> sms = {}, const std::string& comment = "") {
    if (sms.empty()) sms = sms_;
    CudaLaunch l;
    l.args = {{-1, t.buffers, t.aligned, t.divisible, ""}};
    l.grid_x = t.grid_x, l.grid_y = t.grid_y, l.grid_z = t.grid_z;
    l.work = t.work;
    call_long_functions(t.body);
    if (settings_.joins) let_next_start(plan_, k, t.body);
    const auto [it, fresh] = known_.try_emplace(t.body, static_cast<int>(program_.functions.size()));
    l.function = it->second;
    if (!fresh) {
      program_.functions[static_cast<size_t>(l.function)].sms.insert(sms.begin(), sms.end());
      return l;
    }
    CudaFunction f;
    for (char& c : name) {
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    f.name = names_.add(name, t.body);
    replace_all(t.body, "@NAME@", f.name);
    f.text = comment.empty() ? head_comment(k) : comment;
    f.comment_bytes = f.text.size();
    f.text += t.body;
    f.headers = t.headers;
    f.threads = t.threads;
    f.shared_bytes = t.shared_bytes;
    f.sms.insert(sms.begin(), sms.end());
    f.label = k.name + (k.origins.empty() || k.origins[0].source.empty() ? "" : " (" + k.origins[0].source + ")");
    program_.functions.push_back(std::move(f));
    return l;
  }

  const KernelPlan& plan_;
  const CudaSettings& settings_;
  const std::vector<int>& sms_;
  CudaProgram program_;
  std::map<std::string, int> known_;
  FunctionNames names_;
  std::map<std::pair<const UserKernel*, const UserImage*>, int> known_images_;
  size_t joined_until_ = 0;  // kernels before this one are in a launch that is written
  int64_t rows_joined_ = 0;  // the launch that the kernel shares serves all calls of 1 to so many rows
};

}  // namespace

CudaProgram generate_kernels(const KernelPlan& plan, const CudaSettings& settings) { return ProgramWriter(plan, settings).run(); }

}  // namespace coil::cuda
