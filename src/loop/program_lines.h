// Lines that texts of loop programs and of kernel plans have in common: sizes, buffers, checks and results.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"

namespace coil {

// What they look like, each with the end of its line. workers: also the symbol of plans for the number of workers.
std::string sizes_text(const LoopProgram& program, const LoopText& words, bool workers);
// word: of the line; buffer: how it says which buffer.
std::string input_text(const LoopProgram& program, const LoopText& words, const LoopInput& in, std::string_view word, const std::string& buffer);
std::string check_text(const SizeCheck& check);
std::string output_text(const LoopProgram& program, const LoopText& words, const LoopOutput& out);

class ProgramLines {
 protected:
  // contents: bytes that constants have taken, of all texts that share the count.
  ProgramLines(std::shared_ptr<ExprPool> pool, uint64_t* contents) : contents_(contents) { program_.pool = std::move(pool); }

  // A line that begins with "size", "one", "require", "output", "check", "write" or "none". A space stands behind the word: buffers may be named so.
  bool read_common(LoopReader& words);
  // "x: f32[4, rows] strides [rows, 1] pairs meant u16".
  BufferId add(LoopReader& words, BufferInfo::Kind kind);
  // The same of a constant or a state, and its contents.
  void read_stored(LoopReader& words, BufferInfo::Kind kind);
  // What stands behind the first word of an argument's line, in the order of the call. buffer: reads the buffer's part of it; invalid: there is none.
  void read_input(LoopReader& words, std::vector<LoopInput>& inputs, FunctionRef<BufferId()> buffer);

  LoopProgram program_;
  BuffersByName buffers_;

 private:
  void read_size(LoopReader& words);
  void assume_one(LoopReader& words);
  void read_check(LoopReader& words);
  void read_output(LoopReader& words, LoopOutput::Kind kind);

 protected:
  uint64_t* const contents_;
};

}  // namespace coil
