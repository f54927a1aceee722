// Threads and bytes of dynamic shared memory that the template kernels need: read by the kernels, which assert that what they lay out fits, and by
// the compiler, which launches them with so much (src/templates). Sizes are template parameters of the kernels; `size`: bytes of an element.
#ifndef COIL_DEVICE_CUDA_SHARED_MEMORY_H_
#define COIL_DEVICE_CUDA_SHARED_MEMORY_H_

#ifdef __CUDA_ARCH__
#define CD_CONTRACT static __device__ __forceinline__ constexpr long long
#else
#define CD_CONTRACT constexpr long long
#endif

namespace cd {

CD_CONTRACT larger_bytes(long long a, long long b) { return a > b ? a : b; }
CD_CONTRACT rounded_bytes(long long bytes, long long to) { return (bytes + to - 1) / to * to; }

// ---- Sorts ----

// Elements that a thread of a sort has in registers, its block's threads, and what they sort at once.
enum : int { kSortItems = 8, kSortThreads = 256, kSortTile = kSortItems * kSortThreads };

// A row that blocks sort by digits: the most bits of a digit, and the most blocks. Their counts of all digits are in global memory.
enum : int { kRadixBits = 8, kRadixDigits = 1 << kRadixBits, kRadixBlocks = 256 };
CD_CONTRACT radix_counts_bytes() { return 4LL * kRadixDigits * kRadixBlocks; }
// Elements of a block of the sort of n elements: whole tiles.
CD_CONTRACT radix_share(long long n) { return (1 + (n - 1) / (kSortTile * (long long)kRadixBlocks)) * kSortTile; }

// ---- Copies to states and inputs ----

// A block's threads, the bytes that a warp copies at once, and the most blocks: each reads a word of the host's memory, one after the other.
enum : int { kCommitThreads = 1024, kCommitBytes = 4 << 10, kCommitBlocks = 64 };

// ---- Rows that are joined by those of a table ----

// A block's threads, and the elements of each; bins that a block can count in shared memory.
enum : int { kJoinThreads = 256, kJoinItems = 4, kJoinBlock = kJoinThreads * kJoinItems, kJoinCounts = 4096 };
// Columns of a part of the rows that a block adds up, at most; bytes of its table in static shared memory, beside what up to 2,048 rows are for.
enum : int { kPartColumns = 16, kPartBytes = 32 << 10, kPartRows = 2048 };

// ---- Threads of a block ----

enum : int { kBlockThreads = 256 };  // of kernels without tiles
enum : int { kWarpgroup = 128 };
// Warps of wm x wn results (mma.sync).
CD_CONTRACT warp_tile_threads(long long bm, long long bn, long long wm, long long wn) { return bm / wm * (bn / wn) * 32; }
// Threads of tm x tn results each, in each slice of k.
CD_CONTRACT gemm_simt_threads(long long bm, long long bn, long long tm, long long tn, long long slices) { return bm / tm * (bn / tn) * slices; }
CD_CONTRACT conv_simt_threads(long long bm, long long bn, long long tm, long long tn) { return warp_tile_threads(bm, bn, 8 * tm, 4 * tn); }
// A warpgroup for 64 rows, or for 64 columns where these are the lines of the product.
CD_CONTRACT multipliers(long long lines) { return lines / 64 * kWarpgroup; }
// With a warpgroup that loads.
CD_CONTRACT gemm_wgmma_threads(long long bm) { return multipliers(bm) + kWarpgroup; }
// `turns` sets of them, and a warp that loads by TMA or a warpgroup that copies.
CD_CONTRACT gemm_wgmma_split_threads(long long bm, long long turns, bool copies) { return multipliers(bm) * turns + (copies ? kWarpgroup : 32); }
// `groups` of them, and one that loads (convolutions, attention).
CD_CONTRACT warpgroup_threads(long long groups) { return (groups + 1) * kWarpgroup; }
enum : int { kByteF16Multipliers = 2 * kWarpgroup };
CD_CONTRACT byte_f16_threads(long long converters) { return kByteF16Multipliers + 32 * converters; }

// ---- Products ----

// Numbers of which a line of bytes has whole pieces, zeros behind the last one.
enum : int { kBytePiece = 32 };
// Stages of both operands, padded; then whole tiles of the slices, or of a warp 16 bytes of rows at a time. whole: with several slices, or k split.
CD_CONTRACT gemm_simt_shared(long long size, long long bm, long long bn, long long bk, long long tm, long long stages, long long slices, bool whole) {
  return larger_bytes(stages * bk * (size * (bm + bn) + 32), whole ? size * slices * bm * bn : bm * bn * 16 / tm);
}
// Stages of both operands, then the tile in float.
CD_CONTRACT gemm_mma_shared(long long size, long long bm, long long bn, long long bk, long long stages) {
  return larger_bytes(size * stages * bk * (bm + bn), 4 * bm * bn);
}
// Of bytes: stages of 64 numbers of both operands with 16 bytes behind each line, then the tile in 4 bytes.
enum : int { kByteLineA = 64 + 16 };
CD_CONTRACT byte_tiles_shared(long long bits, long long bm, long long bn, long long stages) {
  return larger_bytes(stages * (bm * kByteLineA + bn * (8 * bits + 16)), 4 * bm * bn);
}
// Of bytes by wgmma: a step is 128 bytes of each of the weight's lines, and for them as many numbers of each row. Its sums of a's numbers by group, where zero
// points want them: those of `groups` groups that end within a step, two steps of each warpgroup of 64 columns; or the rows' sums. Behind them two barriers a
// stage.
CD_CONTRACT byte_wgmma_stage(long long bits, long long columns, long long rows) { return 128 * (columns + rows * (8 / bits)); }
CD_CONTRACT byte_wgmma_counts(long long columns, long long rows, long long groups) { return 4 * rows * (groups ? columns / 64 * 2 * groups : 1); }
CD_CONTRACT byte_wgmma_shared(long long bits, long long columns, long long rows, long long stages, long long counts) {
  return larger_bytes(stages * byte_wgmma_stage(bits, columns, rows), 4 * columns * rows) + counts + 16 * stages;
}
// The same in float16: the most groups that a step meets, and the scales (and zero points) of all columns in them, of four steps.
CD_CONTRACT byte_f16_groups(long long bits, long long group) {
  return group % (1024 / bits) == 0 ? 1 : 1024 / bits % group == 0 ? 1024 / bits / group : 1024 / bits / group + 2;
}
CD_CONTRACT byte_f16_scales(long long bits, long long group, long long columns, bool zero) {
  return 4 * byte_f16_groups(bits, group) * columns * (zero ? 4 : 2);
}
// Behind the stages `halves` of 64 numbers of each row, then the scales; or the tile. Then two barriers for each stage and half.
CD_CONTRACT byte_f16_shared(long long bits, long long group, long long columns, long long rows, long long stages, long long halves, bool zero) {
  return larger_bytes(stages * byte_wgmma_stage(bits, columns, rows) + halves * rows * 128 + byte_f16_scales(bits, group, columns, zero), 4 * columns * rows) +
         16 * (stages + halves);
}
// Columns of b that a block of wgmma's kernels loads: those that are contiguous come 64 at a time.
CD_CONTRACT wgmma_columns(long long bn, bool b_k) { return b_k ? bn : rounded_bytes(bn, 64); }
// Two barriers a stage; with rows in classes four.
CD_CONTRACT wgmma_barriers(long long stages, long long classes) { return (classes > 1 ? 32 : 16) * stages; }
// The stages, what the warps finish their 16 rows of a tile through (16, 32 or 64 columns at a time), the barriers.
CD_CONTRACT gemm_wgmma_buffers(long long bm, long long classes) { return bm * 4 * (classes > 1 ? 16 : bm > 128 ? 32 : 64); }
// Bytes of eight columns of a row that an epilogue may read ahead, so that a lane's share of a warp's buffer holds two of them at least.
CD_CONTRACT gemm_wgmma_ahead(long long bm, long long classes) { return gemm_wgmma_buffers(bm, classes) / (bm * 2) / 2; }
CD_CONTRACT gemm_wgmma_shared(long long bm, long long columns, long long stages, long long classes) {
  return stages * (bm + columns) * 128 + gemm_wgmma_buffers(bm, classes) + wgmma_barriers(stages, classes);
}
// The stages or the tile in float, then the barriers.
CD_CONTRACT gemm_wgmma_split_shared(long long bm, long long bn, long long columns, long long stages, long long classes) {
  return larger_bytes(stages * (bm + columns) * 128, 4 * bm * bn) + wgmma_barriers(stages, classes);
}

// ---- Attention ----

CD_CONTRACT attention_mma_shared(long long d, long long queries, long long keys) { return (queries + 4 * keys) * (d + 8) * 2; }
CD_CONTRACT attention_wgmma_shared(long long d, long long queries, long long keys, long long stages) {
  return d * 2 * (queries + 2 * stages * keys) + 8 * (4 * stages + 1);
}
// The queries, keys and values, then weights.
CD_CONTRACT attention_simt_shared(long long d, long long queries, long long keys, long long buffers) {
  return ((queries + buffers * 2 * keys) * (d + 4) + queries * (keys + 4)) * 4;
}
// What each team of lanes found of each row, their weights, and what the cluster's blocks send: items of rows * d that a block finishes, a maximum, a sum and
// a weight of each row.
CD_CONTRACT attention_decode_shared(long long d, long long rows, long long teams, long long threads, long long split) {
  return (teams * rows * (d + 3) + split * ((rows * d + threads * split - 1) / (threads * split) * threads + 3 * rows)) * 4;
}

// ---- Convolutions ----

enum : int { kConvSimtStages = 3, kConvMmaStages = 4 };  // slabs under way
// Tables of rows and taps, stages of slabs of `line` bytes and 16 of padding.
CD_CONTRACT conv_ring_shared(long long size, long long bm, long long bn, long long line, long long stages) {
  return (bm + 2 * (line / size)) * 16 + stages * (bm + bn) * (line + 16);
}
// Or the tile's sums.
CD_CONTRACT conv_mma_shared(long long size, long long bm, long long bn, long long line) {
  return larger_bytes(conv_ring_shared(size, bm, bn, line, kConvMmaStages), bm * (bn + 8) * 4);
}
CD_CONTRACT conv_simt_shared(long long size, long long bm, long long bn, long long line) {
  return larger_bytes(conv_ring_shared(size, bm, bn, line, kConvSimtStages), bm * (bn * size + 16));
}
// Stages, what warps finish their part of a tile through (in their place with SPLIT), the rows' places, barriers.
CD_CONTRACT conv_wgmma_shared(long long groups, long long bn, long long stages, bool split) {
  return stages * (64 * groups + bn) * 128 + (split ? 0 : groups * 16384) + 64 * groups * 16 + 16 * stages;
}
CD_CONTRACT conv_few_patch(long long ic, long long kh, long long kw, long long stride) {  // what a tile sees of the image
  return rounded_bytes(ic * (15 * stride + kh) * (15 * stride + kw), 8) * 2;
}
// The weight, the taps, the patch, then the sums of eight warps.
CD_CONTRACT conv_few_shared(long long ic, long long kh, long long kw, long long stride, long long bn) {
  const long long steps = (ic * kh * kw + 15) / 16;
  return rounded_bytes(bn * (steps * 16 + 8) * 2 + steps * 64 + conv_few_patch(ic, kh, kw, stride), 128) + 8 * 16 * bn * 4;
}
CD_CONTRACT conv_depthwise_strip_shared(long long taps, long long channel_groups) { return taps * channel_groups * 16; }
CD_CONTRACT conv_groups_shared(long long taps, long long ic_group, long long channel_groups) { return taps * ic_group * channel_groups * 16; }

}  // namespace cd

#undef CD_CONTRACT

#endif  // COIL_DEVICE_CUDA_SHARED_MEMORY_H_
