// Reads a line of a loop program's text piece by piece: the inverse of LoopText.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "expr/text_reader.h"
#include "loop/loop.h"

namespace coil {

using BuffersByName = std::map<std::string, BufferId, std::less<>>;

class LoopReader : public TextReader {
 public:
  // All are borrowed.
  LoopReader(const LoopProgram& program, const BuffersByName& buffers, std::string_view line);

  void variables();        // "[i0, i1 | i2]", which says nothing that sizes do not say
  int variable();          // "i1": 1
  BufferId buffer();       // "-": none
  Operand operand();       // "x[i0, i2]"
  std::string all_left();  // of the line, without what quotes it if something does

  // What names mean in expressions: of plans, whose temps have types, and whose loads may be of what is no buffer.
  ParseNames& meaning() { return names(); }

 private:
  const BuffersByName& buffers_;
};

}  // namespace coil
