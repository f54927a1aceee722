// See device.h: naming devices, and the CPU.
#include "runtime/device.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device/alignment.h"
#include "device/huge_pages.h"

namespace coil::runtime {
namespace {

constexpr int64_t kDeviceAlignment = cd::kPlacedAlignment;
// No machine has more; keeps the rounding below from overflowing.
constexpr int64_t kMost = int64_t{1} << 47;

class CpuDevice : public Device {
 public:
  CpuDevice() : Device({COIL_CPU, 0}) {}

  void* allocate(int64_t bytes, CoilError* error) const override {
    error->code = static_cast<int32_t>(ErrorCode::out_of_memory);
    std::snprintf(error->message, sizeof error->message, "%lld bytes of the CPU's memory are not to be had", static_cast<long long>(bytes));
    if (bytes < 0 || bytes > kMost) return nullptr;
    const int64_t rounded = (std::max<int64_t>(bytes, 1) + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
    return cd::allocate_pages(rounded, kDeviceAlignment);
  }
  void free(void* data) const override { std::free(data); }
  int32_t copy(void* to, const void* from, int64_t bytes, void*, CoilError*) const override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return 0;
  }
  int32_t upload(void* to, const void* from, int64_t bytes, CoilError* error) const override { return copy(to, from, bytes, nullptr, error); }
  int32_t synchronise_all(CoilError*) const override { return 0; }
  int32_t synchronise(void*, CoilError*) const override { return 0; }
};

}  // namespace

const Device& cpu_device() {
  static const CpuDevice device;
  return device;
}

std::string device_text(DeviceId id) { return id.type == COIL_CPU ? "cpu" : "cuda:" + std::to_string(id.index); }

Result<DeviceId> parse_device(std::string_view text) {
  if (text == "cpu") return DeviceId{COIL_CPU, 0};
  if (text == "cuda") return DeviceId{COIL_CUDA, 0};
  DeviceId id{COIL_CUDA, 0};
  if (text.starts_with("cuda:") && text.size() > 5) {
    const char* end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data() + 5, end, id.index);
    if (problem == std::errc() && stop == end && id.index >= 0) return id;
  }
  return Error{ErrorCode::bad_option, "'" + std::string(text) + "' is no device; expected cpu, cuda or cuda:N", "", ""};
}

}  // namespace coil::runtime
