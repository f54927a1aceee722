// cuda_tensor_map of cuda_host.h. The driver takes longer to encode a map than to look one up, and most calls of a program use
// the addresses of the call before: a device keeps the maps that were made last.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_device.h"
#include "host_support.h"

namespace cd {
namespace {

enum : int32_t { kInternal = 901 };
constexpr uint32_t kPlaces = 512;  // a power of 2; of 216 bytes

// All fields are 64 bits wide: compared as bytes.
struct Key {
  int64_t dtype;
  const void* base;
  int64_t rank, sizes[4], pitches[3];  // sizes[0] along the contiguous axis; pitches: bytes from one index of axis i + 1 to the next
  int64_t box_cols, box_rows;
};
struct Place {
  Key key;  // rank 0: nothing is here
  unsigned char map[sizeof(CudaTensorMap)];
};

// The driver's number of an element type (CUtensorMapDataType), or -1.
int32_t map_type(int32_t dtype, int32_t* bytes) {
  switch (dtype) {
    case COIL_UINT8:
    case COIL_INT8:
    case COIL_BOOL: *bytes = 1; return 0;
    case COIL_INT16: *bytes = 2; return 1;
    case COIL_INT32: *bytes = 4; return 3;
    case COIL_INT64: *bytes = 8; return 5;
    case COIL_FLOAT16: *bytes = 2; return 6;
    case COIL_FLOAT32: *bytes = 4; return 7;
    case COIL_FLOAT64: *bytes = 8; return 8;
    case COIL_BFLOAT16: *bytes = 2; return 9;
    case kMapTf32: *bytes = 4; return 11;
    default: return -1;
  }
}

int32_t encode(const CudaLoaded& d, CudaTensorMap* map, const Key& k, CoilError* error) {
  int32_t bytes = 0;
  const int32_t type = map_type(static_cast<int32_t>(k.dtype), &bytes);
  if (!d.driver->encode_tiled || type < 0)
    return fail(error, kInternal, "tensor maps are not to be had here (driver before CUDA 12, or dtype number %d)", static_cast<int32_t>(k.dtype)), kInternal;
  uint64_t sizes[4] = {}, pitches[3] = {};
  for (int i = 0; i < 4; i++) sizes[i] = static_cast<uint64_t>(k.sizes[i]);
  for (int i = 0; i < 3; i++) pitches[i] = static_cast<uint64_t>(k.pitches[i]);
  const uint32_t box[4] = {static_cast<uint32_t>(k.box_cols), static_cast<uint32_t>(k.box_rows), 1, 1};
  const uint32_t ones[4] = {1, 1, 1, 1};
  constexpr int32_t kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0;
  const CudaResult result = d.driver->encode_tiled(map, type, static_cast<uint32_t>(k.rank), const_cast<void*>(k.base), sizes, pitches, box, ones,
                                                   kNoInterleave, kSwizzle128, kPromote256, kZeros);
  if (result == kCudaSuccess) return 0;
  char what[256];
  snprintf(what, sizeof what, "no tensor map of %lld axes for %lld x %lld elements of %d bytes, %lld bytes a row, at %p, boxes of %lld x %lld",
           static_cast<long long>(k.rank), static_cast<long long>(k.sizes[1]), static_cast<long long>(k.sizes[0]), bytes, static_cast<long long>(k.pitches[0]),
           k.base, static_cast<long long>(k.box_rows), static_cast<long long>(k.box_cols));
  return cuda_fail(d.driver, result, error, what);
}

}  // namespace

struct CudaMaps {
  pthread_mutex_t mutex;
  Place places[kPlaces];
};

namespace {

// null without memory: then nothing is kept.
CudaMaps* maps_of(CudaLoaded& d) {
  CudaMaps* maps = __atomic_load_n(&d.maps, __ATOMIC_ACQUIRE);
  if (__builtin_expect(maps != nullptr, true)) return maps;
  CudaMaps* made = static_cast<CudaMaps*>(calloc(1, sizeof(CudaMaps)));
  if (!made) return nullptr;
  pthread_mutex_init(&made->mutex, nullptr);
  if (__atomic_compare_exchange_n(&d.maps, &maps, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return made;
  free(made);  // another thread was faster
  return maps;
}

// Each key has two places; the second takes what the first held before.
Place* first_place(CudaMaps* maps, const Key& key) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(&key);
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof key / 8; i++) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
  return &maps->places[hash % (kPlaces / 2) * 2];
}

// The map that is kept for the key, or a new one.
int32_t find_or_encode(CudaLoaded& d, CudaTensorMap* map, const Key& key, CoilError* error) {
  CudaMaps* maps = maps_of(d);
  if (!maps) return encode(d, map, key, error);
  Place* const place = first_place(maps, key);
  pthread_mutex_lock(&maps->mutex);
  for (int i = 0; i < 2; i++) {
    if (memcmp(&place[i].key, &key, sizeof key) != 0) continue;
    memcpy(map, place[i].map, sizeof *map);
    pthread_mutex_unlock(&maps->mutex);
    return 0;
  }
  pthread_mutex_unlock(&maps->mutex);
  if (const int32_t failed = encode(d, map, key, error)) return failed;
  pthread_mutex_lock(&maps->mutex);
  place[1] = place[0];
  place[0].key = key;
  memcpy(place[0].map, map, sizeof *map);
  pthread_mutex_unlock(&maps->mutex);
  return 0;
}

}  // namespace

void cuda_maps_close(CudaMaps* maps) {
  if (maps) pthread_mutex_destroy(&maps->mutex);
  free(maps);
}

int32_t cuda_tensor_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const void* base, int64_t rows, int64_t cols, int64_t pitch_bytes,
                        int32_t box_rows, int32_t box_cols, CoilError* error) {
  return find_or_encode(loaded_of(call), map, {dtype, base, 2, {cols, rows}, {pitch_bytes}, box_cols, box_rows}, error);
}

int32_t cuda_class_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const void* base, int64_t rows, int64_t cols, int64_t row_stride,
                       int32_t classes, int32_t index, int32_t box_rows, CoilError* error) {
  if (index >= rows) index = 0;  // what is read of it lands in rows that nobody looks at
  const char* row = static_cast<const char*>(base) + index * row_stride * 2;
  const int64_t apart = row_stride * 2 * classes;
  const auto shift = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % (apart % 32 == 0 ? 32 : 16));
  return cuda_tensor_map(call, map, dtype, row - shift, (rows - index + classes - 1) / classes, cols + shift / 2, apart, box_rows, 64, error);
}

bool cuda_rows_fit(const CudaRows& x) {
  const auto fits = [](int64_t size, int64_t stride) { return size == 1 || (size > 1 && stride > 0 && stride % 8 == 0); };
  return x.dim > 0 && reinterpret_cast<uintptr_t>(x.base) % 16 == 0 && fits(x.batch, x.batch_stride) && fits(x.heads, x.head_stride) &&
         fits(x.rows, x.row_stride);
}

int32_t cuda_rows_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const CudaRows& x, int32_t box_rows, CoilError* error) {
  // The stride of an axis of one index means nothing, but the driver wants a good one.
  const auto pitch = [](int64_t size, int64_t stride) { return size > 1 ? stride * 2 : 16; };
  const Key key = {
      dtype, x.base,  4, {x.dim, x.rows, x.heads, x.batch}, {pitch(x.rows, x.row_stride), pitch(x.heads, x.head_stride), pitch(x.batch, x.batch_stride)},
      64,    box_rows};
  return find_or_encode(loaded_of(call), map, key, error);
}

}  // namespace cd
