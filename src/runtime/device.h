// Where a model computes and where its tensors live: the CPU, or one CUDA device. What both hosts of memory have in common;
// streams and kernels are the model's code's affair.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda_driver.h"
#include "device/model_abi.h"

namespace coil::runtime {

// What code of a package, or a device, reports.
inline Error error_of(const CoilError& error) { return Error{static_cast<ErrorCode>(error.code), error.message, "", ""}; }

struct DeviceId {
  int32_t type = COIL_CPU;
  int32_t index = 0;
  bool operator==(const DeviceId&) const = default;
};

// "cpu", "cuda" (device 0), "cuda:1". Anything else: COIL-E402.
Result<DeviceId> parse_device(std::string_view text);
std::string device_text(DeviceId id);  // "cpu", "cuda:1"

// Thread-safe. Addresses are those of the device; copy accepts both its own and the host's (CUDA tells them apart).
class Device {
 public:
  explicit Device(DeviceId id) : id_(id) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceId id() const { return id_; }
  std::string text() const { return device_text(id_); }

  // 64-byte aligned (CUDA: 256), contents undefined; null with *error, which says how much there is.
  virtual void* allocate(int64_t bytes, CoilError* error) const = 0;
  virtual void free(void* data) const = 0;
  // Copies in any direction, after what was enqueued on `stream`; returns when the data has arrived.
  virtual int32_t copy(void* to, const void* from, int64_t bytes, void* stream, CoilError* error) const = 0;
  // Fills device memory from pageable host memory; for large amounts.
  virtual int32_t upload(void* to, const void* from, int64_t bytes, CoilError* error) const = 0;
  // Waits for everything on the device, or for one stream of it.
  virtual int32_t synchronise_all(CoilError* error) const = 0;
  virtual int32_t synchronise(void* stream, CoilError* error) const = 0;

 private:
  DeviceId id_;
};

// The CPU. Has no state; lives as long as the process.
const Device& cpu_device();

// A CUDA device's primary context, held as long as this lives.
class CudaDevice : public Device {
 public:
  // COIL-E306 without a driver, COIL-E307 without such a device.
  static Result<std::shared_ptr<const CudaDevice>> open(int32_t ordinal);
  ~CudaDevice() override;

  void* allocate(int64_t bytes, CoilError* error) const override;
  void free(void* data) const override;
  int32_t copy(void* to, const void* from, int64_t bytes, void* stream, CoilError* error) const override;
  int32_t upload(void* to, const void* from, int64_t bytes, CoilError* error) const override;
  int32_t synchronise_all(CoilError* error) const override;
  int32_t synchronise(void* stream, CoilError* error) const override;

  const cd::CudaDriver& driver() const { return *driver_; }
  void* context() const { return context_; }
  std::string architecture() const;  // "sm_90"

 private:
  CudaDevice(int32_t ordinal, const cd::CudaDriver* driver, int32_t device, void* context)
      : Device({COIL_CUDA, ordinal}), driver_(driver), device_(device), context_(context) {}

  const cd::CudaDriver* driver_;
  int32_t device_;
  void* context_;
};

// What the driver tells of a device without starting it.
struct CudaDeviceInfo {
  std::string name;
  int32_t major = 0, minor = 0;
  int32_t multiprocessors = 0;
  int32_t clock_khz = 0, memory_clock_khz = 0, memory_bits = 0;  // 0: the driver does not say
  int64_t memory_bytes = 0;
};
struct CudaInfo {
  int32_t driver_version = 0;  // 13000: CUDA 13.0
  std::vector<CudaDeviceInfo> devices;
};
Result<CudaInfo> cuda_info();

}  // namespace coil::runtime
