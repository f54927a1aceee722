#include "shapes.h"

#include <fmt/format.h>

#include <charconv>

#include "expr/expr.h"

namespace coil::tool {
namespace {

Result<int64_t> tensor_bytes(const Json& tensors, Sizes& sizes) {
  int64_t total = 0;
  for (const Json& t : tensors) {
    int64_t bytes = static_cast<int64_t>(dtype_bytes_of(t.at("dtype").get<std::string>()));
    for (const Json& size : t.at("shape")) {
      TRY(const int64_t n, sizes.evaluate(size));
      if (__builtin_mul_overflow(bytes, n, &bytes)) bytes = INT64_MAX;
    }
    if (__builtin_add_overflow(total, bytes, &total)) total = INT64_MAX;
  }
  return total;
}

}  // namespace

Result<std::pair<std::string, std::string>> split_assignment(const std::string& text, const char* option) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size()) {
    return Error{ErrorCode::bad_option, fmt::format("{} '{}' is not of the form NAME=VALUE", option, text), "", ""};
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Status apply_shapes(const std::vector<std::string>& arguments, Sizes& sizes, const char* option) {
  for (const std::string& text : arguments) {
    TRY(const auto pair, split_assignment(text, option));
    int64_t value = 0;
    const char* end = pair.second.data() + pair.second.size();
    const auto [stop, error] = std::from_chars(pair.second.data(), end, value);
    if (error != std::errc() || stop != end) return Error{ErrorCode::bad_option, fmt::format("{} '{}': '{}' is not a size", option, text, pair.second), "", ""};
    TRY_STATUS(sizes.set(pair.first, value));
  }
  return ok_status();
}

Result<MemoryNeed> memory_need(const Json& manifest, Sizes& sizes) {
  MemoryNeed need;
  const Json& memory = manifest.at("memory");
  TRY(need.arena, sizes.evaluate(memory.at("arena_bytes")));
  TRY(need.outputs, tensor_bytes(manifest.at("outputs"), sizes));
  TRY(need.inputs, tensor_bytes(manifest.at("inputs"), sizes));
  need.constants = integer_or_zero(memory, "constants_bytes");
  need.state = integer_or_zero(memory, "state_bytes");
  return need;
}

std::string shape_text(const Json& shape) {
  std::string text = "[";
  for (const Json& size : shape) text += (text.size() > 1 ? ", " : "") + (size.is_string() ? size.get<std::string>() : size.dump());
  return text + "]";
}

size_t dtype_bytes_of(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  return dtype ? static_cast<size_t>(byte_size(*dtype)) : 0;
}

}  // namespace coil::tool
