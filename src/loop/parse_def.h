// Reads definitions: what stands behind "x: f32[4] =".
#pragma once

#include <string_view>

#include "loop/loop_reader.h"

namespace coil {

// Words that expressions read as something else than names.
inline constexpr std::string_view kWords[] = {"true", "false", "inf", "nan", "load"};

// Of Concat and Region their first line: pieces and parts stand on lines of their own.
void read_def(LoopReader& words, ExprPool& pool, LoopDef& def);
Concat::Piece read_piece(LoopReader& words);
// A size's symbol by its label.
SymbolId read_symbol(LoopReader& words, const ExprPool& pool);
// "where it holds", "otherwise", "step", "while".
const char* part_title(Region::Kind kind, size_t part);

}  // namespace coil
