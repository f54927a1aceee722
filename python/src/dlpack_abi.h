// The structs of DLPack 1.x that cross the border between libraries, as its specification lays them out.
#pragma once

#include <cstdint>

namespace coil::python {

struct DlDevice {
  int32_t type;  // kDlCpu, kDlCuda, ...
  int32_t index;
};
inline constexpr int32_t kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;

struct DlDtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
inline constexpr uint8_t kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4, kDlComplex = 5, kDlBool = 6;
inline constexpr uint8_t kDlFloat8E4m3fn = 10, kDlFloat8E4m3fnuz = 11, kDlFloat8E5m2 = 12, kDlFloat8E5m2fnuz = 13, kDlFloat8E8m0fnu = 14;

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlDtype dtype;
  int64_t* sizes;
  int64_t* strides;  // in elements; null before 1.2: contiguous
  uint64_t byte_offset;
};

struct DlVersion {
  uint32_t major, minor;
};

// Of capsules named "dltensor".
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged* self);
};
// Of capsules named "dltensor_versioned".
struct DlManagedVersioned {
  DlVersion version;
  void* context;
  void (*deleter)(DlManagedVersioned* self);
  uint64_t flags;  // bit 0: read-only
  DlTensor tensor;
};
inline constexpr uint64_t kDlReadOnly = 1;

// Of the capsule "dlpack_exchange_api" that a tensor type has as __dlpack_c_exchange_api__: descriptions without allocation.
struct DlExchange {
  DlVersion version;
  void* older;
  int (*allocate)(DlTensor* like, DlManagedVersioned** out, void* context, void (*fail)(void*, const char*, const char*));
  int (*export_managed)(void* object, DlManagedVersioned** out);
  int (*import_managed)(DlManagedVersioned* tensor, void** object);
  int (*describe)(void* object, DlTensor* out);  // null: not provided; -1: a Python exception is set
  int (*current_stream)(int32_t device_type, int32_t device_index, void** stream);
};

}  // namespace coil::python
