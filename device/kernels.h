/* The device library: blocked CPU kernels that every package may link, written once in clang vector types and compiled ahead
 * of time for each instruction set (device/kernels, one object per ISA, embedded in the coil binary and linked into
 * packages that need it). Symbols carry the ISA as a suffix: coil_gemm_v3, coil_gemm_v4.
 *
 * Accumulation is float32 for float32, bfloat16 and float16 data. Products and convolutions of float64 have entries of their own
 * (coil_gemm_f64_v3): everything is float64 there, tiles of the epilogue too, panels have COIL_PANEL_COLUMNS(8) columns. Results go through an epilogue
 * callback, tile by tile while the tile is in cache: generated code adds bias, activation, residual and converts and stores. A null epilogue stores to `c` as
 * is. Kernels are deterministic: the order of a sum depends only on the problem, never on threads.
 */
#ifndef COIL_DEVICE_KERNELS_H_
#define COIL_DEVICE_KERNELS_H_

#include "model_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Panels of bfloat16 may hold pairs of k where k is a multiple of this: a step of the matrix unit. */
#define COIL_PAIRED_K 32
/* Columns of a packed panel of B; the same for every ISA, so that one packed constant serves all. */
#define COIL_PANEL 32
/* Columns of a panel of elements of so many bytes: a row of doubles has the bytes of one of floats. */
#define COIL_PANEL_COLUMNS(BYTES) ((BYTES) == 8 ? COIL_PANEL / 2 : COIL_PANEL)
/* The k of one call of a micro-kernel, from which on a blocked product keeps partial sums in its scratch. */
#define COIL_GEMM_UNBLOCKED_K(BYTES) ((BYTES) == 8 ? 128 : 256)
/* Bounds of a tile that an epilogue sees, for every ISA and kernel. */
#define COIL_TILE_ROWS 64
#define COIL_TILE_COLS 64
/* Scratch for a packed copy of one B that a call makes (CoilGemm.b_copied): whole panels, a multiple of 64. */
#define COIL_PAIRED_DEPTH(k) (((k) + COIL_PAIRED_K - 1) / COIL_PAIRED_K * COIL_PAIRED_K)
#define COIL_GEMM_COPY_BYTES(n, k, element) (((n) + COIL_PANEL - 1) / COIL_PANEL * (COIL_PAIRED_DEPTH(k) * (COIL_PANEL * (element))))
/* Rows from which such a copy pays: of float32, and of elements of two bytes, which are widened else. */
#define COIL_GEMM_COPY_ROWS 756
#define COIL_GEMM_COPY_HALF_ROWS 16
/* Rows of a tile of sums that vectors of so many floats compute; the most rows of A and panels of B in a task. */
#define COIL_VECTOR_TILE_ROWS(LANES) ((LANES) == 16 ? 14 : 6)
#define COIL_BLOCK_ROWS 84
#define COIL_BLOCK_PANELS 16
/* Rows that are a multiple of so many bytes apart share so few sets of the first cache that a tile's rows would drive each other out. */
#define COIL_COLLIDING_ROW_BYTES 2048
/* Rows of bfloat16 from which on its instructions beat the reading of a weight (with fewer the vector units are as fast: kernels/amx.h). */
#define COIL_FEWEST_PAIRED_ROWS 8
/* Scratch of one worker, see coil_*_scratch_bytes: the sums of a task. */
#define COIL_GEMM_WORKER_BYTES (COIL_BLOCK_ROWS * COIL_BLOCK_PANELS * COIL_PANEL * 4)
/* Of coil_gemm_grouped: where its groups begin; bfloat16 panels that a worker keeps while it goes through a group's rows, and the k up to which it does. */
#define COIL_GROUP_TABLE_BYTES(groups) (((groups) + 5) / 4 * 64)
#define COIL_GROUP_PANELS 8
#define COIL_GROUP_KEPT_K 16384
/* A packed panel of a product of integers: [ceil(k/4)][COIL_PANEL][4] int8, then COIL_PANEL int32, see CoilGemm. */
#define COIL_INTEGER_PANEL_BYTES(k) (((k) + 3) / 4 * 4 * COIL_PANEL + COIL_PANEL * 4)
/* Rows of k of the smallest group of a product of bytes with groups, see CoilGemm. */
#define COIL_LEAST_BYTE_GROUP 16
/* Taps of a depthwise convolution of bytes: as many products of 255 and 128 have a sum that float32 holds exactly. */
#define COIL_DEPTHWISE_BYTE_TAPS 512
/* Narrow groups: floats of a copy of what 8 pixels of a line see of 64 channels' groups, and whether it holds them. */
#define COIL_NARROW_GROUPS_FLOATS 6144
#define COIL_NARROW_GROUPS_FIT(kh, kw, stride_w, dilation_w, width) \
  ((kh) * (7 * (stride_w) + ((kw) - 1) * (dilation_w) + 1) * (64 % (width) == 0 ? 64 : 64 + 2 * (width)) <= COIL_NARROW_GROUPS_FLOATS)
/* Output channels for which vectors along the input's channels pay, see CoilConv2d. */
#define COIL_FEW_OUTPUTS 8
/* Attention: the most numbers of a head; the most rows of a task, of which smaller ones are made until there are so many tasks. */
#define COIL_ATTENTION_DIM 256
#define COIL_ATTENTION_ROWS 56
#define COIL_ATTENTION_TASKS 16
#define COIL_ATTENTION_WORKER_BYTES 294912
/* Winograd convolutions: tiles of 2x2 or 4x4 pixels in a block, and blocks for each worker that may be transformed at a time. */
#define COIL_WINOGRAD_TILES(tile) ((tile) == 4 ? 14 : 28)
#define COIL_WINOGRAD_SPREAD 2
/* The transformed windows of a block: places of a window that share a row, by the input's channels; and the bytes of all rows, of a chunk of k each. */
#define COIL_WINOGRAD_PLACES(ic) ((ic) < COIL_GEMM_UNBLOCKED_K(4) ? COIL_GEMM_UNBLOCKED_K(4) / (ic) : 1)
#define COIL_WINOGRAD_BLOCK_BYTES(tile, ic)                                                  \
  ((((tile) + 2) * ((tile) + 2) + COIL_WINOGRAD_PLACES(ic) - 1) / COIL_WINOGRAD_PLACES(ic) * \
   (((ic) + COIL_GEMM_UNBLOCKED_K(4) - 1) / COIL_GEMM_UNBLOCKED_K(4)) * COIL_WINOGRAD_TILES(tile) * ((COIL_GEMM_UNBLOCKED_K(4) + 16) * 4))

/* rows x cols finished results, 1 <= rows <= COIL_TILE_ROWS, 1 <= cols <= COIL_TILE_COLS; element (r, c) of the tile is
 * acc[r * ld + c], its place in the problem (row + r, col + c) of `batch`. acc is 64-byte aligned, ld is a multiple of 16 and
 * at least cols rounded up to 16, so whole vectors can be read and written: columns from cols to ld are padding of no meaning.
 * col is a multiple of 32, of float64 16 (in a grouped convolution: counted from the group's first channel). The tile may be overwritten.
 * Called by several threads at once for different tiles; each element of the problem comes exactly once. */
typedef void (*CoilEpilogue)(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld);

/* COIL_BLOCK_RULE. A task of a blocked product computes block_tiles tiles of rows (of 14 rows with 512-bit vectors, 6 with 256, 32 with AMX) by
 * block_panels panels of columns; what is too large for the kernel's buffers is cut to what fits them. Sums do not depend on it. */

/* C[b] = A[b] * B[b] for b in [0, batch). Strides are in elements; a batch stride of 0 shares the operand.
 * B is either packed (b_packed: panels [ceil(n/COIL_PANEL)][k][COIL_PANEL], zero padded, b_batch elements apart) or strided.
 * A strided B is packed block by block by each worker, or read in place. Nothing outside the operands is read, nothing
 * outside C is written. batch, m, n, k may be 0; k == 0 gives zeros (through the epilogue). b_batch of a packed B counts the
 * padding: 0, or ceil(n/COIL_PANEL)*COIL_PANEL*k.
 * Pairs (b_pairs; packed, COIL_BFLOAT16): panels [ceil(n/COIL_PANEL)][COIL_PAIRED_DEPTH(k)/2][COIL_PANEL][2], zero padded, as the machines' instructions
 * for bfloat16 read them; meant for products of many rows.
 * Quantised weights (b_bits; packed, of coil_gemm batch 1): int8 panels as above, or of 4 bits [ceil(n/COIL_PANEL)][k][COIL_PANEL/2], byte j being
 * column j (low bits) and j + 16 with 8 added, or (b_coded) as codes, places in the list b_codes of numbers.
 * An element counts as (b - zero) * scale in float32, as computed for its group of rows of k;
 * beside a bfloat16 A of several rows it may be rounded to bfloat16 (not where groups are whole columns of int8 without zeros).
 * Integers (dtype COIL_UINT8 or COIL_INT8 for A; packed, batch 1): B int8 in panels of COIL_INTEGER_PANEL_BYTES(k) bytes, four rows of a column
 * side by side, zero padded, then the columns' sums times -128; sums are exact (modulo 2^32), the epilogue's tile holds int32, c is int32.
 * Both (coil_gemm_bytes; COIL_INT8 for A and b_bits; packed, batch 1; groups are whole columns or a multiple of 4 from COIL_LEAST_BYTE_GROUP on): panels
 * [ceil(n/COIL_PANEL)][ceil(k/4)][COIL_PANEL][4] of int8, or of 4 bits [..][COIL_PANEL/2][4] as above; zero padded. A's numbers times elements as above in
 * float32: exact sums of groups of up to 2^16 rows, times their scales. */
typedef struct CoilGemm {
  int64_t batch, m, n, k;
  const void* a;
  int64_t a_batch, a_row, a_col;
  const void* b;
  int64_t b_batch, b_row, b_col;
  void* c;                /* used when epilogue is null */
  int64_t c_batch, c_row; /* c's column stride is 1 */
  int32_t dtype;          /* COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16: a, b and c; of coil_gemm_f64 COIL_FLOAT64 */
  int32_t b_packed;
  int32_t b_copied;                  /* the scratch has room for packed copies of a b that is not packed: made where the rows are many */
  int32_t block_tiles, block_panels; /* the blocks of a task, see COIL_BLOCK_RULE; 0: as the kernel finds best */
  CoilEpilogue epilogue;
  const void* epilogue_context;
  void* scratch;
  int32_t b_bits; /* 8, 4: a packed B of integers beside an A of floats; 0: B is of dtype */
  int64_t b_group;
  const void* b_scale;                 /* [ceil(k / b_group)][n] of float32, or null: 1 */
  const void* b_zero;                  /* the same shape, or null: 0 */
  int32_t b_scale_dtype, b_zero_dtype; /* where packed: COIL_FLOAT32, COIL_FLOAT16 or COIL_BFLOAT16 */
  int32_t b_no_least;                  /* no number of b is -128: faster on some machines beside a COIL_INT8 A */
  int32_t b_pairs;                     /* a packed B of bfloat16 in pairs of k */
  int32_t b_tables_packed;             /* both are [ceil(n / COIL_PANEL)][ceil(k / b_group)][COIL_PANEL], zero padded */
  int32_t b_coded;                     /* numbers of 4 bits are codes */
  uint64_t b_codes[2];                 /* 16 int8, that of code 0 in the lowest bits */
  const void* ends;                    /* of coil_gemm_grouped alone, like all that follows: [batch] int32, or int64 */
  int32_t ends_wide;                   /* int64 */
  int32_t by_depth;                    /* groups are ranges of k; else of rows */
  int32_t* flag;                       /* becomes 1 where ends decrease or leave [0, m or k]; null: nobody asks */
} CoilGemm;

/* coil_gemm_grouped: products of groups that follow one another; `ends` says where each of the `batch` groups ends. By rows: group g's rows of A (a_batch is 0)
 * meet B[g], c_batch is 0, and rows behind the last group are zeros. By depth: C[g] is the product of group g's columns of A and rows of B (b_batch 0, not
 * packed). float32, bfloat16 and float16. Ends that are wrong read and write nothing outside the operands.
 * Quantised weights (by rows): of each group one after the other, b_batch numbers apart, and so are its tables of scales and zero points.
 * coil_gemm_grouped_bytes: the same of coil_gemm_bytes' operands. */

/* 2-D convolution (cross-correlation, zero padding; the pads may differ at the far side: oh and ow say how far it goes), input
 * and output channels-last in memory with arbitrary outer strides: x[n][h][w][c] with c stride 1 (or any strides when
 * `x_c` != 1: then the kernel gathers; fast for few channels, as in a first layer on NCHW data). Epilogue: batch is 0, rows are
 * output pixels in order ((n * oh) + y) * ow + x and a tile may run over the end of a line or image, columns are channels.
 * groups: weights of group g are packed one after the other, each [ceil(oc_g/PANEL)][kh*kw*ic_g][PANEL], zero padded.
 * Pairs (w_pairs; COIL_BFLOAT16, x_c == 1, ic/groups a multiple of COIL_PAIRED_K): weights [ceil(oc_g/PANEL)][kh*kw*ic_g/2][PANEL][2], as of CoilGemm.
 * Depthwise (depthwise = 1, groups == ic == oc): weights [ceil(c/PANEL)][kh*kw][PANEL], zero padded.
 * Narrow groups (narrow_groups = 1; floats, ic == oc, x_c == 1, ic/groups is 2, 4 or a multiple of 8; other than float32, or if
 * oc is no multiple of 16: COIL_NARROW_GROUPS_FIT): the panels run over the groups, weights [ceil(oc/PANEL)][kh*kw*ic_g][PANEL], zero padded. Tiles
 * may hold several groups: columns count from the first channel.
 * Few outputs (few_outputs = 1; floats, one group, oc at most COIL_FEW_OUTPUTS, x_c == 1): weights [oc][kh][kw][ic].
 * Winograd (winograd = t: tiles of 2x2 or 4x4 outputs; 3x3, strides and dilations 1, one group, x_c == 1, ic a multiple of 16): weights
 * transformed, always float32, [ceil(oc/PANEL)][(t+2)*(t+2)][ic][PANEL], zero padded. An infinity or NaN of the input reaches all outputs of the
 * tiles whose windows hold it.
 * With w_plain the call transforms the weight (float32): winograd is the tile.
 * w_direct, if it is not null, is the same weight in bfloat16 as it is packed for plain sums: machines with a matrix unit for bfloat16 take that.
 * Integers (dtype COIL_UINT8 or COIL_INT8 for x; x_c == 1 or ic == 1): w int8, y and the epilogue's tile int32, the exact sums of (x - x_zero) * w over
 * what lies inside the image; x_zero is a number that x can hold. Weights per group in panels of COIL_INTEGER_PANEL_BYTES(kh*kw*ic_g), as of
 * CoilGemm, or depthwise as above with at most COIL_DEPTHWISE_BYTE_TAPS taps.
 * Weights that are known at run time only (w_plain) are [oc][ic / groups][kh][kw] with any strides: the call packs them first. */
typedef struct CoilConv2d {
  int64_t n, ic, ih, iw, oc, oh, ow, kh, kw;
  int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
  const void* x;
  int64_t x_n, x_c, x_h, x_w;
  const void* w;              /* packed at compile time, or as it is (w_plain) */
  int64_t w_o, w_i, w_h, w_w; /* strides of a plain weight */
  void* y;                    /* used when epilogue is null: [n][oh][ow][oc], dense */
  int32_t dtype;
  int32_t depthwise;
  int32_t narrow_groups;
  int32_t few_outputs;
  int32_t winograd;
  int32_t w_plain;
  int32_t implicit;                  /* not 0: by the implicit product also where the kernel for small maps fits */
  int32_t block_tiles, block_panels; /* of the implicit product: as of CoilGemm */
  int32_t x_zero;                    /* of integers */
  int32_t w_pairs;                   /* the weight (of Winograd's filtering: w_direct) is packed in pairs of k */
  const void* w_direct;              /* beside transformed weights */
  CoilEpilogue epilogue;
  const void* epilogue_context;
  void* scratch;
} CoilConv2d;

/* softmax(q k^T * scale + mask) v without the score matrix. All tensors [batch][heads][length][dim], dim stride 1 for q, k,
 * v, o. 1 <= dim, v_dim <= COIL_ATTENTION_DIM. heads % kv_heads == 0 (grouped-query). mask: null, or bool (true = attend) or additive of
 * mask_dtype, broadcast by zero strides. causal: row i sees columns <= i (PyTorch's is_causal: top-left aligned); it may be
 * combined with a mask. What is false or at most highest_fill (NaN: nothing is) takes the place of the score, even of NaN, as masked_fill does;
 * other numbers are added. A fully masked row gives zeros when `masked_rows_zero` (PyTorch >= 2.5), else NaN. o has the dtype of q.
 * The first `past` of the kv_len rows of keys and values may lie elsewhere (a cache that a call reads): they are k_past's and v_past's, and k
 * and v begin with the row behind them. keep_k_past, keep_v_past: these rows are copied in front of k and v, in steps of k_row and v_row. */
typedef struct CoilAttention {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim, v_dim;
  const void* q;
  int64_t q_batch, q_head, q_row;
  const void* k;
  int64_t k_batch, k_head, k_row;
  const void* v;
  int64_t v_batch, v_head, v_row;
  int64_t past;
  const void* k_past;
  int64_t k_past_batch, k_past_head, k_past_row;
  const void* v_past;
  int64_t v_past_batch, v_past_head, v_past_row;
  int32_t keep_k_past, keep_v_past;
  const void* mask;
  int64_t mask_batch, mask_head, mask_row, mask_col;
  int32_t mask_dtype; /* COIL_BOOL, or a float dtype */
  int32_t causal;
  int32_t masked_rows_zero;
  int32_t dtype; /* of q, k, v, o */
  float scale;
  float highest_fill;
  void* o;
  int64_t o_batch, o_head, o_row;
  void* scratch;
  int32_t block_tiles; /* a task's rows, in tiles of rows, and the keys at a time, in panels; 0: by the problem's own rule */
  int32_t block_panels;
} CoilAttention;

/* The kernels of one instruction set: here x86-64's; another machine's header (device/aarch64/kernel_levels.h) has its own levels. */
#define COIL_KERNELS(ISA)                                                         \
  void coil_gemm_##ISA(const CoilGemm* args, const CoilHost* host);               \
  void coil_gemm_bytes_##ISA(const CoilGemm* args, const CoilHost* host);         \
  void coil_conv2d_##ISA(const CoilConv2d* args, const CoilHost* host);           \
  void coil_attention_##ISA(const CoilAttention* args, const CoilHost* host);     \
  void coil_gemm_f64_##ISA(const CoilGemm* args, const CoilHost* host);           \
  void coil_gemm_grouped_##ISA(const CoilGemm* args, const CoilHost* host);       \
  void coil_gemm_grouped_bytes_##ISA(const CoilGemm* args, const CoilHost* host); \
  void coil_conv2d_f64_##ISA(const CoilConv2d* args, const CoilHost* host);
COIL_KERNELS(v3)
COIL_KERNELS(v4)

/* Bytes of `scratch` (64-byte aligned; may be 0). The compiler's memory plan evaluates the same formulas symbolically
 * (src/templates), a test keeps the two equal:
 *   gemm       k > COIL_GEMM_UNBLOCKED_K(element) ? num_workers * COIL_GEMM_WORKER_BYTES : 0
 *              and b_copied ? batch * COIL_GEMM_COPY_BYTES(n, k, element) : 0
 *   conv2d     depthwise, narrow_groups or few_outputs ? 0 : (kh * kw * (ic / groups) > COIL_GEMM_UNBLOCKED_K(element) ? num_workers * COIL_GEMM_WORKER_BYTES :
 * 0)
 *                              + (x_c == 1 ? 0 : round_up(n * ih * iw * ic * (float64 ? 8 : 4), 64)),
 *              and w_plain ? round_up(bytes of the packed weight, 64) : 0
 *              (of integers: 0)
 *   winograd   min(blocks, COIL_WINOGRAD_SPREAD * num_workers) * COIL_WINOGRAD_BLOCK_BYTES(t, ic),
 *              where tiles = COIL_WINOGRAD_TILES(t), and n images of ty x tx = ceil(oh / t) x ceil(ow / t) tiles are cut into
 *              bx = ceil(tx / tiles) times ceil(n * ty / (tiles / ceil(tx / bx))) blocks;
 *              with w_plain max(that, 9 * place) + (t+2)*(t+2) * place, where place = round_up(oc, PANEL) * ic * 4
 *   attention  num_workers * COIL_ATTENTION_WORKER_BYTES
 *   gemm_grouped   as gemm, and COIL_GROUP_TABLE_BYTES(batch), and of bfloat16 that is not packed
 *                  num_workers * COIL_GROUP_PANELS * ceil(min(k, COIL_GROUP_KEPT_K) / 2) * COIL_PANEL * 4
 *   gemm_grouped_bytes   COIL_GROUP_TABLE_BYTES(batch)
 * num_workers is CoilHost.num_workers. Other fields than the sizes (and x_c, w_plain, b_copied, dtype) are not looked at. */
int64_t coil_gemm_scratch_bytes(const CoilGemm* args, int32_t num_workers);
int64_t coil_conv2d_scratch_bytes(const CoilConv2d* args, int32_t num_workers);
int64_t coil_attention_scratch_bytes(const CoilAttention* args, int32_t num_workers);

#ifdef __cplusplus
}
#endif
#endif /* COIL_DEVICE_KERNELS_H_ */
