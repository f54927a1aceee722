// How text of a program's file gets into generated C++ and CUDA: names, source lines, module paths, messages, dimensions. All of it is somebody
// else's, so it passes through one of these and can end neither a comment nor a literal nor a line.
#pragma once

#include <string>
#include <string_view>

namespace coil {

// For a comment of either kind: printable ASCII on one line. Every other character becomes '.', a backslash '/', and what would end a block
// comment or make a trigraph is taken apart. Long text is cut: a comment is for readers.
std::string comment_text(std::string_view text);

// A C string literal of the same bytes, quotes included.
std::string c_string(std::string_view text);

// The literal of a message for people (base/text.h): a package's errors also come out where nothing of coil's is between, in PyTorch.
std::string message_literal(std::string_view text);

// "#line 1 "name"\n": the same restrictions as in comments, and no quotes.
std::string line_directive(std::string_view file);

}  // namespace coil
