#include "loop/loop_reader.h"

#include <fmt/format.h>

namespace coil {
namespace {

ParseNames names_of(const LoopProgram& program, const BuffersByName& buffers) {
  ParseNames names;
  names.buffer = [&](std::string_view name) -> std::optional<std::pair<BufferId, DType>> {
    const auto found = buffers.find(name);
    if (found == buffers.end()) return std::nullopt;
    return std::pair(found->second, program.buffer(found->second).dtype);
  };
  return names;
}

}  // namespace

LoopReader::LoopReader(const LoopProgram& program, const BuffersByName& buffers, std::string_view line)
    : TextReader(*program.pool, line, names_of(program, buffers)), buffers_(buffers) {}

std::string LoopReader::all_left() {
  skip_space();
  if (rest().starts_with('"')) return quoted();
  std::string left(rest());
  go_to({});
  return left;
}

void LoopReader::variables() {
  expect("[");
  const size_t end = rest().find(']');
  if (end == std::string_view::npos) fail("expected ']'");
  else go_to(rest().substr(end + 1));
}

int LoopReader::variable() {
  int64_t number = 0;
  skip_space();
  if (!rest().starts_with('i')) fail("expected a variable");
  if (failed()) return 0;
  go_to(rest().substr(1));
  if (!integer_next(&number) || number < 0 || number > 1000) fail("expected a variable's number");
  return failed() ? 0 : static_cast<int>(number);
}

BufferId LoopReader::buffer() {
  if (accept("-")) return {};
  const std::string word = name();
  const auto found = buffers_.find(word);
  if (!failed() && found == buffers_.end()) fail(fmt::format("there is no buffer '{}' before this line", word));
  return failed() ? BufferId() : found->second;
}

Operand LoopReader::operand() {
  const BufferId id = buffer();
  return {id, list()};
}

}  // namespace coil
