// See device.h: CUDA through the driver.
#include <cstdio>

#include "device/cuda_upload.h"
#include "runtime/device.h"

namespace coil::runtime {
namespace {

cd::CudaAddress address(const void* data) { return reinterpret_cast<cd::CudaAddress>(data); }

std::string mebibytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

int32_t attribute(const cd::CudaDriver& driver, int32_t which, int32_t device) {
  int32_t value = 0;
  driver.device_attribute(&value, which, device);
  return value;
}

}  // namespace

Result<std::shared_ptr<const CudaDevice>> CudaDevice::open(int32_t ordinal) {
  CoilError error{};
  const cd::CudaDriver* driver = cd::cuda_driver(&error);
  if (!driver) return error_of(error);
  int32_t device = 0;
  if (cd::cuda_find_device(driver, ordinal, &device, &error)) return error_of(error);
  void* context = nullptr;
  if (const cd::CudaResult result = driver->retain(&context, device)) {
    cd::cuda_fail(driver, result, &error, ("cannot start device " + device_text({COIL_CUDA, ordinal})).c_str());
    return error_of(error);
  }
  return std::shared_ptr<const CudaDevice>(new CudaDevice(ordinal, driver, device, context));
}

CudaDevice::~CudaDevice() { driver_->release(device_); }

void* CudaDevice::allocate(int64_t bytes, CoilError* error) const {
  const cd::CudaScope scope(driver_, context_);
  cd::CudaAddress data = 0;
  const cd::CudaResult result = bytes < 0 ? cd::CudaResult{cd::kCudaOutOfMemory} : driver_->allocate(&data, static_cast<size_t>(bytes ? bytes : 1));
  if (result == cd::kCudaSuccess) return reinterpret_cast<void*>(data);
  if (result != cd::kCudaOutOfMemory) {
    cd::cuda_fail(driver_, result, error, ("cannot allocate memory of " + text()).c_str());
    return nullptr;
  }
  size_t free = 0, total = 0;
  driver_->memory_info(&free, &total);
  error->code = static_cast<int32_t>(ErrorCode::out_of_memory);
  std::snprintf(error->message, sizeof error->message, "%s has %s free of %s", text().c_str(), mebibytes(free).c_str(), mebibytes(total).c_str());
  return nullptr;
}

void CudaDevice::free(void* data) const {
  if (!data) return;
  const cd::CudaScope scope(driver_, context_);
  driver_->free(address(data));  // waits for the work that may use it
}

int32_t CudaDevice::copy(void* to, const void* from, int64_t bytes, void* stream, CoilError* error) const {
  if (bytes <= 0) return 0;
  const cd::CudaScope scope(driver_, context_);
  cd::CudaResult result = driver_->copy(address(to), address(from), static_cast<size_t>(bytes), stream);
  if (result == cd::kCudaSuccess) result = driver_->synchronise_stream(stream);
  return result == cd::kCudaSuccess ? 0 : cd::cuda_fail(driver_, result, error, ("a copy on " + text() + " failed").c_str());
}

int32_t CudaDevice::upload(void* to, const void* from, int64_t bytes, CoilError* error) const {
  return bytes <= 0 ? 0 : cd::cuda_upload(driver_, context_, address(to), from, static_cast<uint64_t>(bytes), error);
}

int32_t CudaDevice::synchronise_all(CoilError* error) const {
  const cd::CudaScope scope(driver_, context_);
  const cd::CudaResult result = driver_->synchronise();
  return result == cd::kCudaSuccess ? 0 : cd::cuda_fail(driver_, result, error, ("work on " + text() + " failed").c_str());
}

int32_t CudaDevice::synchronise(void* stream, CoilError* error) const {
  const cd::CudaScope scope(driver_, context_);
  const cd::CudaResult result = driver_->synchronise_stream(stream);
  return result == cd::kCudaSuccess ? 0 : cd::cuda_fail(driver_, result, error, ("a kernel on " + text() + " failed (COIL_CUDA_SYNC=1 tells which)").c_str());
}

std::string CudaDevice::architecture() const {
  return "sm_" + std::to_string(attribute(*driver_, cd::kCudaMajor, device_) * 10 + attribute(*driver_, cd::kCudaMinor, device_));
}

Result<CudaInfo> cuda_info() {
  CoilError error{};
  const cd::CudaDriver* driver = cd::cuda_driver(&error);
  if (!driver) return error_of(error);
  CudaInfo info;
  driver->driver_version(&info.driver_version);
  int32_t count = 0;
  driver->device_count(&count);
  for (int32_t i = 0; i < count; i++) {
    int32_t device = 0;
    if (driver->device(&device, i) != cd::kCudaSuccess) continue;
    CudaDeviceInfo& d = info.devices.emplace_back();
    char name[256] = "";
    driver->device_name(name, sizeof name, device);
    d.name = name;
    d.major = attribute(*driver, cd::kCudaMajor, device);
    d.minor = attribute(*driver, cd::kCudaMinor, device);
    d.multiprocessors = attribute(*driver, cd::kCudaMultiprocessors, device);
    d.clock_khz = attribute(*driver, cd::kCudaClockKhz, device);
    d.memory_clock_khz = attribute(*driver, cd::kCudaMemoryClockKhz, device);
    d.memory_bits = attribute(*driver, cd::kCudaMemoryBits, device);
    size_t bytes = 0;
    driver->device_memory(&bytes, device);
    d.memory_bytes = static_cast<int64_t>(bytes);
  }
  return info;
}

}  // namespace coil::runtime
