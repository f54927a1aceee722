// See nvtx.h.
#include "runtime/nvtx.h"

#include <dlfcn.h>

#include "base/env.h"

namespace coil::runtime {
namespace {

// The part of NVTX 3's protocol that is used here, by its layout. A tool is given `export_table`; through it, it finds the places of the function
// pointers of each module, and fills those that it serves.
enum : uint32_t { kCallbacksTable = 1, kVersionTable = 3 };                                 // NvtxExportTableID
enum : int { kCore2 = 5 };                                                                  // NvtxCallbackModule
enum : size_t { kRangePush = 4, kRangePop = 5, kDomainCreate = 12, kCore2Functions = 16 };  // NvtxCallbackIdCore2
constexpr uint32_t kVersion = 3;

using NvtxFunction = void (*)();
struct CallbacksTable {
  size_t struct_size;
  int (*module_functions)(int module, NvtxFunction*** table, unsigned* size);
};
struct VersionTable {
  size_t struct_size;
  uint32_t version, reserved;
  void (*set_tool_version)(uint32_t version);
};
struct Attributes {  // nvtxEventAttributes_v2
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char* message;
};
constexpr int32_t kAscii = 1;
static_assert(sizeof(Attributes) == 48);

NvtxFunction functions[kCore2Functions] = {};
NvtxFunction* slots[kCore2Functions + 1] = {};

int module_functions(int module, NvtxFunction*** table, unsigned* size) {
  if (module != kCore2) return 0;
  for (size_t i = 1; i < kCore2Functions; ++i) slots[i] = &functions[i];
  if (table) *table = slots;
  if (size) *size = kCore2Functions;
  return 1;
}

const void* export_table(uint32_t id) {
  static const CallbacksTable callbacks = {sizeof(CallbacksTable), module_functions};
  static const VersionTable version = {sizeof(VersionTable), kVersion, 0, [](uint32_t) {}};
  return id == kCallbacksTable ? static_cast<const void*>(&callbacks) : id == kVersionTable ? &version : nullptr;
}

}  // namespace

bool Nvtx::attach(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return false;
  using Initialise = int (*)(const void* (*)(uint32_t));
  const auto initialise = reinterpret_cast<Initialise>(dlsym(handle, "InitializeInjectionNvtx2"));
  if (!initialise || initialise(export_table) != 1) {
    dlclose(handle);
    return false;
  }
  push_ = reinterpret_cast<int (*)(void*, const void*)>(functions[kRangePush]);
  pop_ = reinterpret_cast<int (*)(void*)>(functions[kRangePop]);
  const auto create = reinterpret_cast<void* (*)(const char*)>(functions[kDomainCreate]);
  if (!push_ || !pop_) return false;  // it serves other things; its library stays
  domain_ = create ? create("coil") : nullptr;
  return true;
}

Status Nvtx::check_environment() {
  const std::string word = env("COIL_NVTX").value_or("calls");
  if (word == "0" || word == "calls" || word == "kernels") return ok_status();
  return Error{ErrorCode::bad_option, "COIL_NVTX='" + word + "' is none of 0, calls and kernels", "",
               "calls: a range for each call; kernels: and one for each kernel"};
}

const Nvtx* Nvtx::get() {
  static const Nvtx* const made = []() -> const Nvtx* {
    const auto library = env("NVTX_INJECTION64_PATH");
    const std::string word = env("COIL_NVTX").value_or("calls");
    if (!library || word == "0") return nullptr;
    auto* nvtx = new Nvtx;  // never destroyed: calls may run while the process ends
    nvtx->of_kernels_ = word == "kernels";
    return nvtx->attach(*library) ? nvtx : nullptr;
  }();
  return made;
}

void Nvtx::push(const char* name) const {
  Attributes a = {};
  a.version = kVersion, a.size = sizeof a, a.message_type = kAscii, a.message = name;
  push_(domain_, &a);
}

void Nvtx::pop() const { pop_(domain_); }

std::vector<std::string> range_names(const KernelTable& table) {
  std::vector<std::string> names;
  for (const KernelRow& row : table.kernels) {
    std::string name = row.name;
    if (!row.module.empty()) name += ": " + row.module;
    if (!row.source.empty()) name += " (" + row.source + ")";
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace coil::runtime
