// Where float32 arithmetic may round its factors to TensorFloat-32: 8 bits of exponent as float32 has, 10 of mantissa as float16 (NVIDIA A100
// whitepaper, 2020). Products and convolutions apart, as PyTorch sets them: torch.backends.cuda.matmul and torch.backends.cudnn.
#pragma once

#include <optional>
#include <string_view>

namespace coil {

struct Tf32 {
  bool products = false;  // matrix products and attention
  bool convolutions = false;

  bool any() const { return products || convolutions; }
  bool operator==(const Tf32&) const = default;
};

// As options say it: "no", "products", "convolutions", "all".
inline std::string_view name(Tf32 t) { return t.products ? (t.convolutions ? "all" : "products") : t.convolutions ? "convolutions" : "no"; }

inline std::optional<Tf32> tf32_by_name(std::string_view text) {
  for (const Tf32 t : {Tf32{}, Tf32{true, false}, Tf32{false, true}, Tf32{true, true}}) {
    if (text == name(t)) return t;
  }
  return std::nullopt;
}

}  // namespace coil
