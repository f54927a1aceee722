// Reads definitions: what stands behind "x: f32[4] =".
#pragma once

#include "loop/loop_reader.h"

namespace coil {

// Of Concat and Region their first line: pieces and parts stand on lines of their own.
void read_def(LoopReader& words, LoopDef& def);
Concat::Piece read_piece(LoopReader& words);
// "where it holds", "otherwise", "step", "while".
const char* part_title(Region::Kind kind, size_t part);

}  // namespace coil
