// The sizes' formulas that a package's manifest holds ("4*min(batch*32, 1024) + 1"), as expr/print.cc writes them, in floating point: for
// whoever shows amounts without the compiler. Anything else that a text may hold gives no number.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace coil {

// values[i] is that of names[i]. Nothing when the text is not such a formula, or uses another name.
std::optional<double> evaluate_formula(std::string_view text, std::span<const std::string> names, std::span<const int64_t> values);

}  // namespace coil
