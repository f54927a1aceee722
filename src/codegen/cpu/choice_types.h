// The CPU's choices of kernels (codegen/choice.h), one type for each kind of kernel. Zero leaves a member to the kernel's default.
#pragma once

#include "codegen/choice.h"

namespace coil::cpu {

// direct: of weights packed as they are, by the convolution's own rules; implicit: of these by the implicit product, whatever the rules
// say; winograd: of transformed weights; onednn: by that library where the machine has it (device/onednn.h), else directly. Products are
// computed by their default or by oneDNN.
enum Method : int32_t { kOwnMethod, kDirect, kImplicit, kWinograd, kOneDnn };

// Products and convolutions. Blocks: tiles of rows and panels of 32 columns, of implicit convolutions too.
struct ProductChoice {
  int32_t method = kOwnMethod, block_tiles = 0, block_panels = 0, threads = 0;
  static constexpr ChoiceNames kNames = {"method", "block_tiles", "block_panels", "threads"};
};
struct AttentionChoice {
  int32_t none = 0, block_tiles = 0, block_panels = 0, threads = 0;
  static constexpr ChoiceNames kNames = {"", "block_tiles", "block_panels", "threads"};
};
// form: a LoopFormKind (loop_form.h), and what its size counts. chunk_work: vector operations of the smallest chunk for another thread.
struct LoopChoice {
  int32_t form = 0, chunk_work = 0, size = 0, threads = 0;
  static constexpr ChoiceNames kNames = {"form", "chunk_work", "size", "threads"};
};
// config: which of the configurations that the user gives.
struct UserChoice {
  int32_t config = 0, chunk_work = 0, none = 0, threads = 0;
  static constexpr ChoiceNames kNames = {"config", "chunk_work", "", "threads"};
};
struct OtherChoice {
  int32_t none[3] = {}, threads = 0;  // at most so many
  static constexpr ChoiceNames kNames = {"", "", "", "threads"};
};

}  // namespace coil::cpu
