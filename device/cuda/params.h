// What the host program hands to the template kernels: one struct a launch, by value. Plain C, read by clang (the host program) and by
// NVRTC (the kernels). All strides are in elements, all sizes as the names say.
#ifndef COIL_DEVICE_CUDA_PARAMS_H_
#define COIL_DEVICE_CUDA_PARAMS_H_

// CUtensorMap: 128 opaque bytes, filled by the driver.
struct alignas(64) CudaTensorMap {
  unsigned long long words[16];
};

// result[b][i][j] = sum over l of a[b][i][l] * b[b][l][j]; a at a + b*a_batch + i*a_row + l*a_col, b at b + b*b_batch + l*b_row +
// j*b_col. A batch stride of 0 shares the operand. k == 0 gives zeros through the epilogue.
struct CudaGemm {
  long long batch, m, n, k;
  const void* a;
  long long a_batch, a_row, a_col;
  const void* b;
  long long b_batch, b_row, b_col;
  void* scratch;  // of the variant's scratch formula, or null
  int split;      // parts of k, 1: none
  int reserved;
  CudaTensorMap map_b, map_a[8];  // of variants that ask for them; a's others are of its rows 1, 2, ... (and every 2nd, 4th or 8th after
                                  // each), where neighbours are not multiples of 32 bytes apart
};

// As CudaGemm with one batch, of numbers: a i8, b lines of 8-bit or 4-bit numbers along k (bytes.h), `b_line` bytes apart, one a column. Scales and zero points
// of group g in column j at scale + g*scale_group + j*scale_col; null: 1 and 0.
struct CudaByteProduct {
  long long m, n, k;
  const void* a;
  long long a_row, a_col;
  const void* b;
  long long b_line;
  const void* scale;
  long long scale_group, scale_col;
  const void* zero;
  long long zero_group, zero_col;
  void* scratch;  // not used
};
struct CudaBytes : CudaByteProduct {
  CudaTensorMap map_a, map_b;  // of variants that ask for them
};

// Products of bytes of the same row. A set of blocks computes one of them, or two side by side, one behind the other here.
struct CudaJoinedBytes {
  long long m;
  CudaByteProduct product[6];
  int end[6];  // blocks up to and with each set
};

// Products of the same rows of a [m, k]: of each set the columns of one weight [n, k], or those of two side by side. A tile has two halves of 8 columns, or
// one.
struct CudaJoined {
  long long m;
  const void* a;  // null where the kernel computes the rows
  long long a_row;
  struct Set {
    const void* b[2];  // of each half of a tile: where the weight's lines begin, how far apart they are, and how many there are
    long long b_col[2];
    int n[2];
    int step;  // columns from a tile to the next
    int end;   // tiles up to and with this set
  } set[6];
};

// Groups of rows (a's rows meet their group's b; a_batch is 0) or of k (each group has a result of its own; the batch strides are 0): group g ends at ends[g],
// and the next one begins. Rows behind the last group give zeros.
struct CudaGroupedGemm : CudaGemm {
  const void* ends;  // [batch], int or long long
  int ends_wide;
};

// 2-D convolution as CoilConv2d (device/kernels.h) states it, but the weight is [oc][kh][kw][ic / groups], dense.
struct CudaConv2d {
  long long n, ic, ih, iw, oc, oh, ow;
  int kh, kw, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, split;
  const void* x;
  long long x_n, x_c, x_h, x_w;
  const void* w;
  void* scratch;
  CudaTensorMap map_w;  // of variants that ask for it
};

// As CoilAttention (device/kernels.h).
struct CudaAttention {
  long long batch, heads, kv_heads, q_len, kv_len, dim, v_dim;
  const void* q;
  long long q_batch, q_head, q_row;
  const void* k;
  long long k_batch, k_head, k_row;
  const void* v;
  long long v_batch, v_head, v_row;
  const void* mask;
  long long mask_batch, mask_head, mask_row, mask_col;
  void* o;
  long long o_batch, o_head, o_row;
  void* scratch;
  float scale, highest_fill;
  int nan_rows;                       // queries that see no key give NaN, not 0
  CudaTensorMap map_q, map_k, map_v;  // of variants that ask for them
};

#endif  // COIL_DEVICE_CUDA_PARAMS_H_
