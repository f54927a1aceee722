// The fake driver's tensor maps: what the emulation's TMA reads (tests/cuda_emulation/hopper.h). Included by fake_cuda.cpp, inside its namespaces' reach.
#pragma once

// Two axes, 128-byte swizzle, zeros outside: what products ask for. Refused is what a driver refuses.
API cuTensorMapEncodeTiled(void* map, int32_t type, uint32_t rank, void* base, const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                           const uint32_t* element_strides, int32_t interleave, int32_t swizzle, int32_t, int32_t fill) {
  constexpr uint32_t kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  constexpr uint64_t kMostSize = uint64_t{1} << 32;
  if (type < 0 || type >= static_cast<int32_t>(std::size(kBytes)) || rank != 2 || interleave != 0 || swizzle != 3 || fill != 0) return kInvalid;
  const uint32_t bytes = kBytes[type];
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0 || strides[0] % 16 != 0 || strides[0] >= uint64_t{1} << 40) return kInvalid;
  for (int i = 0; i < 2; i++) {
    if (sizes[i] < 1 || sizes[i] > kMostSize || box[i] < 1 || box[i] > 256 || element_strides[i] != 1) return kInvalid;
  }
  if (box[0] * bytes % 16 != 0 || box[0] * bytes > 128) return kInvalid;
  const EmulatedTensorMap made = {
      EmulatedTensorMap::kMagic, static_cast<const unsigned char*>(base), {sizes[0], sizes[1]}, strides[0], {box[0], box[1]}, bytes};
  memcpy(map, &made, sizeof made);
  return kOk;
}
